"""The smallest whole run of each tool, to be copied, moved and damaged: two tasks, one of which failed."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

Files = dict[str, bytes]


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=2).encode()


def as_lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def jsonl() -> Files:
    died = {"type": "Lost", "phase": "agent", "exit_code": 1, "message": "gone"}
    artifact = {"name": "patch", "sha256": "a" * 64, "size": 3}
    whole = {
        "task": "one", "attempt": 1, "reward": 1.0, "status": "succeeded", "dimensions": {"style": 0.5},
        "artifacts": [artifact], "started_at": "2026-01-02T03:04:05Z", "ended_at": "2026-01-02T03:09:05Z",
    }  # fmt: skip
    return {"trials.jsonl": as_lines(whole, {"task": "两", "attempt": 1, "error": died})}


def tau_bench() -> Files:
    task = {"instruction": "Book it."}
    rows = [
        {"task_id": 0, "trial": 0, "reward": 1.0, "info": {"task": task}, "traj": [{"role": "user", "content": "hi"}]},
        {"task_id": 1, "trial": 0, "reward": 0.0, "info": {"error": "lost", "traceback": "T"}, "traj": []},
    ]
    return {"gpt-airline.json": as_json(rows)}


def swe_bench() -> Files:
    lists: dict[str, list[str]] = {
        "submitted": ["a__b-1", "a__b-2"], "completed": ["a__b-1"], "resolved": ["a__b-1"], "unresolved": [],
        "error": ["a__b-2"], "empty_patch": [], "incomplete": ["a__b-3"],
    }  # fmt: skip
    counts = {f"{name}_instances": len(ids) for name, ids in lists.items() if name != "incomplete"}
    ids = {f"{name}_ids": listed for name, listed in lists.items()}
    report = {"total_instances": 3, **counts, **ids, "failure_reasons": {"a__b-2": "oom"}, "schema_version": 2}
    instance = {"a__b-1": {"patch_is_None": False, "patch_exists": True, "resolved": True, "tests_status": {}}}
    return {
        "model.run.json": as_json(report),
        "logs/run_evaluation/run/model/a__b-1/report.json": as_json(instance),
    }


def harbor() -> Files:
    agent = {"name": "agent", "model_name": "demo/model", "kwargs": {}}
    stats = {"n_completed_trials": 2, "n_errored_trials": 1, "evals": {}}
    files = {
        "config.json": as_json({"job_name": "job", "n_attempts": 1, "agents": [agent], "datasets": [], "tasks": []}),
        "result.json": as_json({
            "id": "171e489a-b1e8-4b14-b629-98d1dc601112", "started_at": "2026-03-02T09:00:00.120000",
            "finished_at": "2026-03-02T09:02:39.370000", "n_total_trials": 2, "stats": stats,
        }),
        "lock.json": as_json({
            "schema_version": 3, "created_at": "2026-03-02T09:00:00.120000Z", "harbor": {"version": "0.26.0"},
            "trials": [
                {"task": {"name": f"acme/{name}", "digest": f"sha256:{digest * 64}", "source": "acme/mini"},
                 "agent": agent}
                for name, digest in (("alpha", "a"), ("beta", "b"))
            ],
        }),
    }  # fmt: skip
    for number, name in enumerate(("alpha", "beta")):
        lost = {
            "exception_type": "AgentTimeoutError",
            "exception_message": "slow",
            "occurred_at": "2026-03-02T09:01:00",
        }
        trial = {
            "id": f"d168e1fb-53f6-439b-9e21-95d9df45ac9{number}", "task_name": f"acme/{name}",
            "trial_name": f"{name}__t{number}", "source": "acme/mini",
            "task_id": {"org": "acme", "name": name, "ref": f"sha256:{'ab'[number] * 64}"}, "task_checksum": "c" * 64,
            "config": {"task": {"name": f"acme/{name}", "source": "acme/mini"}, "agent": agent},
            "agent_info": {"name": "agent", "version": "1.4.0", "model_info": {"name": "model", "provider": "demo"}},
            "agent_result": {"n_input_tokens": 10, "n_cache_tokens": 1, "n_output_tokens": 2, "cost_usd": 0.01},
            "verifier_result": None if number else {"rewards": {"reward": 1.0}},
            "exception_info": lost if number else None,
            "started_at": "2026-03-02T09:01:25.120000Z", "finished_at": "2026-03-02T09:01:58.370000Z",
            "step_results": None,
        }  # fmt: skip
        files[f"{name}__t{number}/result.json"] = as_json(trial)
        files[f"{name}__t{number}/config.json"] = as_json(trial["config"])
    files["alpha__t0/verifier/reward.txt"] = b"1.0"
    return files


def terminal_bench() -> Files:
    def row(task: str, resolved: bool | None, mode: str) -> dict[str, Any]:
        return {
            "id": f"139c12df-e652-47e9-b338-b55c0e27b6e{len(task)}", "trial_name": f"{task}.1-of-1.run",
            "task_id": task, "instruction": "Do it.", "is_resolved": resolved, "failure_mode": mode,
            "parser_results": {"test_a": "passed"}, "total_input_tokens": 1, "total_output_tokens": 1,
            "trial_started_at": "2026-01-10T08:00:00+00:00", "trial_ended_at": "2026-01-10T08:00:50+00:00",
        }  # fmt: skip

    rows = [row("one", True, "unset"), row("three", None, "test_timeout")]
    metadata = {
        "run_id": "run", "uuid": "a3ecb8de-7d98-479a-877a-255bd21ce1b9", "dataset_name": "core",
        "dataset_version": "0.1.1", "agent_name": "agent", "model_name": "demo/model", "n_attempts": 1,
        "task_ids": ["one", "three"], "dataset_size": 2, "accuracy": 0.5,
        "start_time": "2026-01-10T08:00:00+00:00", "end_time": "2026-01-10T08:08:05+00:00",
    }  # fmt: skip
    harness = {"package": "terminal-bench", "version": "0.2.18"}
    results = {"id": "192ce810-f313-4158-894d-880e6255ba11", "results": rows, "accuracy": 0.5}
    return {
        "run_metadata.json": as_json(metadata),
        "tb.lock": as_json({"lockfile_version": "1.0", "harness": harness}),
        "results.json": as_json(results),
        **{f"{each['task_id']}/{each['trial_name']}/results.json": as_json(each) for each in rows},
    }


def tau2() -> Files:
    def simulation(number: int, reason: str, reward: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "id": f"72499a7a-eb75-54ef-a72e-c297ee16639{number}", "task_id": str(number), "trial": 0, "seed": 1,
            "start_time": "2026-02-01T12:00:00", "end_time": "2026-02-01T12:01:20", "duration": 79.5,
            "termination_reason": reason, "agent_cost": 0.01, "reward_info": reward, "messages": [],
        }  # fmt: skip

    reward = {"reward": 1.0, "reward_basis": ["DB"], "reward_breakdown": {"DB": 1.0}, "info": None}
    results = {
        "timestamp": "2026-02-01T11:59:58.000001",
        "info": {"git_commit": "0" * 40, "num_trials": 1, "environment_info": {"domain_name": "demo"}, "seed": 300},
        "tasks": [{"id": str(number), "user_scenario": {"instructions": "Do it."}} for number in range(2)],
        "simulations": [simulation(0, "user_stop", reward), simulation(1, "infrastructure_error", None)],
    }
    return {"results.json": as_json(results)}


def _inspect_parts() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    header = {
        "version": 2, "status": "success",
        "eval": {
            "eval_id": "e1", "run_id": "r1", "created": "2026-01-02T03:04:05+00:00", "task": "mini", "task_id": "t1",
            "task_version": 0, "dataset": {"name": "mini-set", "samples": 2, "sample_ids": [1, "two"]},
            "model": "mockllm/model", "config": {"epochs": 1}, "packages": {"inspect_ai": "0.3.285"},
        },
        "results": {"total_samples": 2, "completed_samples": 1, "scores": []},
        "stats": {"started_at": "2026-01-02T03:04:05+00:00", "completed_at": "2026-01-02T03:04:06+00:00"},
    }  # fmt: skip
    died = {"message": "lost", "traceback": "T"}
    samples: list[dict[str, Any]] = [
        {"id": 1, "epoch": 1, "input": "0", "target": "", "scores": {"match": {"value": "C"}}},
        {"id": "two", "epoch": 1, "input": "1", "target": "", "scores": {}, "error": died},
    ]
    return header, samples


def inspect_json() -> Files:
    header, samples = _inspect_parts()
    return {"2026_mini.json": as_json({**header, "samples": samples})}


def inspect_eval() -> Files:
    header, samples = _inspect_parts()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        start = {"version": header["version"], "eval": header["eval"], "plan": {}}
        file.writestr("_journal/start.json", as_json(start))
        for sample in samples:
            file.writestr(f"samples/{sample['id']}_epoch_1.json", as_json(sample))
        file.writestr("header.json", as_json(header))
    return {"2026_mini.eval": archive.getvalue()}


def lm_eval() -> Files:
    results = {
        "results": {"qa": {"alias": "qa", "acc,none": 0.5, "acc_stderr,none": 0.5}}, "versions": {"qa": 1.0},
        "configs": {"qa": {"task": "qa", "metric_list": [{"metric": "acc"}], "metadata": {"version": 1.0}}},
        "n-samples": {"qa": {"original": 2, "effective": 2}}, "task_hashes": {"qa": "c" * 64},
        "config": {"model": "hf", "model_args": "pretrained=demo"}, "date": 1767225600.5, "model_name": "demo",
        "start_time": 1.5, "end_time": 2.5,
    }  # fmt: skip
    rows = [
        {"doc_id": number, "doc": {"q": "q"}, "target": "0", "filter": "none", "metrics": ["acc"],
         "doc_hash": "ab"[number] * 64, "acc": float(number)}
        for number in range(2)
    ]  # fmt: skip
    stamp = "2026-01-01T00-00-00.500000"
    return {f"results_{stamp}.json": as_json(results), f"samples_qa_{stamp}.jsonl": as_lines(*rows)}


RUNS: dict[str, Files] = {
    "harbor": harbor(),
    "inspect": inspect_json(),
    "jsonl": jsonl(),
    "lm-eval": lm_eval(),
    "swe-bench": swe_bench(),
    "tau-bench": tau_bench(),
    "tau2": tau2(),
    "terminal-bench": terminal_bench(),
}
INSPECT_EVAL = inspect_eval()


def write_run(files: Files, folder: Path) -> Path:
    """The files of a run in a folder, which is returned."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder
