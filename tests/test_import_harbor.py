"""Importing Harbor: the lock says what was asked for, each result what it came to, and nothing is guessed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.client import Client, connect
from api.importers.importing import Report, import_path
from api.importers.run import Options
from api.settings import Settings
from ledger.facts.trial import ArtifactFailed, ArtifactPersisted, trial_stream
from projections.trials import TrialRow, structured_result, why_no_reward
from tests.given_harbor import AGENT, JOB_ID, at, begin_trial, digest_of, error, locked, write, write_job, write_trial

OTHER = {"name": "other", "model_name": "lab/m-2"}


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return tmp_path / "jobs" / "2026-03-02__09-00-00"


@pytest.fixture
def take(client: Client) -> Callable[..., Report]:
    return lambda path, **options: import_path(client, "harbor", path, Options(**options))


Take = Callable[..., Report]


def trials(client: Client, report: Report, number: int = 0) -> dict[tuple[str, int], TrialRow]:
    assert report.refused == []
    return {(row.task, row.attempt): row for row in client.trials(report.jobs[number].id)}


def flags(report: Report) -> set[str]:
    assert report.refused == []
    return set(report.jobs[0].flags)


def refusal(client: Client, report: Report) -> str:
    assert report.jobs == []
    assert client.jobs().jobs == []
    assert client.datasets() == []
    return report.refused[0].why


def one(client: Client, take: Take, job: Path, rewards: Any, **more: Any) -> tuple[TrialRow, set[str]]:
    """The only trial of a job, with the flags of the import."""
    write_job(job, [locked("a")])
    write_trial(job, "a__1", "a", rewards, **more)
    report = take(job)
    return trials(client, report)["a", 1], flags(report)


# --- what was asked for ----------------------------------------------------------------------------------------------


def test_attempts_are_numbered_by_start(client: Client, take: Take, job: Path) -> None:
    """Ties by the trial's name, one without a start last; the name tells nothing of the task."""
    write_job(job, [locked("a")] * 4, k=4)
    write_trial(job, "z__1", "a", {"reward": 0.1}, start=1)
    write_trial(job, "b__2", "a", {"reward": 0.2}, start=2)
    write_trial(job, "b__1", "a", {"reward": 0.3}, start=2)
    write_trial(job, "a__0", "a", {"reward": 0.4}, started_at=None)
    found = trials(client, take(job))
    assert [found["a", n].reward for n in (1, 2, 3, 4)] == [0.1, 0.3, 0.2, 0.4]


def test_slots_that_were_never_dispatched_stay_empty(client: Client, take: Take, job: Path) -> None:
    """Members come from the lock, k from the configuration: what was not run is missing, not left out."""
    write_job(job, [locked("a"), locked("b"), locked("a"), locked("b")], k=2)
    write_trial(job, "a__1", "a", {"reward": 1})
    report = take(job)
    counts = client.result(report.jobs[0].id).score_counts
    assert (counts.total, counts.scored, counts.missing, counts.total_members) == (4, 1, 3, 2)
    assert set(trials(client, report)) == {("a", 1)}


def test_without_a_lock_members_are_those_that_ran(client: Client, take: Take, job: Path) -> None:
    """Versions up to 0.6 write none: the version is unknown, and slots of tasks that nobody names are flagged."""
    write_job(job, None, k=2, total=4)
    for name in ("a__1", "a__2"):
        (write_trial(job, name, "a", {"reward": 1}, start=int(name[-1])) / "lock.json").unlink()
    report = take(job)
    (done,) = report.jobs
    assert (done.attempts, done.members, "slots-differ" in done.flags) == (2, 1, True)
    assert client.job(done.id).runner == "harbor@unknown"
    assert client.job(done.id).origin["policy"] == "harbor-0.25"


@pytest.mark.parametrize(
    ("digest", "checksum", "expected"),
    [
        (f"sha256:{digest_of('a')}", "0" * 64, digest_of("a")),
        (digest_of("a"), "0" * 64, digest_of("a")),
        ("sha1:abc", "0" * 64, None),
        (None, "e" * 64, "e" * 64),
        (None, "not-hex", None),
    ],
)
def test_a_tasks_digest_is_its_content_where_harbor_has_it(
    client: Client, take: Take, job: Path, digest: str | None, checksum: str, expected: str | None
) -> None:
    """The lock's digest, without one the checksum; what is no sha256 leaves the task known by its name."""
    write_job(job, [locked("a", digest=digest)])
    folder = write_trial(job, "a__1", "a", {"reward": 1}, task_checksum=checksum)
    write(folder / "lock.json", locked("a", digest=digest))
    report = take(job)
    (_, task), *_ = client.dataset_tasks(report.jobs[0].dataset)
    assert (task.digest == expected) == (expected is not None)
    assert client.dataset(report.jobs[0].dataset).digests == ("content" if expected else "by-name")


def test_each_agent_model_and_source_is_a_job(client: Client, take: Take, job: Path) -> None:
    """All of one run of Harbor, each with its own trials; imported again, each is the same job."""
    write_job(job, [locked("a"), locked("a", OTHER), locked("b", source="acme/more")])
    write_trial(job, "a__1", "a", {"reward": 1})
    write_trial(job, "a__2", "a", {"reward": 0}, agent=OTHER)
    write_trial(job, "b__1", "b", {"reward": 1}, source="acme/more")
    report = take(job)
    said = [(done.as_reported["agent"], done.as_reported["model"], done.as_reported["source"]) for done in report.jobs]
    assert said == [
        ("demo", "lab/m-1", "acme/mini"),
        ("other", "lab/m-2", "acme/mini"),
        ("demo", "lab/m-1", "acme/more"),
    ]
    assert [client.result(done.id).score for done in report.jobs] == [1.0, 0.0, 1.0]
    assert {(done.outcome, done.entries_written) for done in take(job).jobs} == {("unchanged", 0)}


def test_more_trials_than_asked_for_are_kept(client: Client, take: Take, job: Path) -> None:
    """An attempt beyond k is flagged, and its member is not complete."""
    write_job(job, [locked("a")], total=2)
    write_trial(job, "a__1", "a", {"reward": 1}, start=1)
    write_trial(job, "a__2", "a", {"reward": 1}, start=2)
    report = take(job)
    assert {"extra-trials", "slots-differ"} <= flags(report)
    assert client.result(report.jobs[0].id).score_counts.complete_members == 0


def test_a_local_task_is_called_as_it_calls_itself(client: Client, take: Take, job: Path) -> None:
    """The lock names it after its folder; the trial, by its own name."""
    write_job(job, [locked("hello"), locked("never")])
    folder = write_trial(job, "hello__1", "hello", {"reward": 1}, task_name="acme/hello")
    write(folder / "lock.json", locked("hello"))
    report = take(job)
    assert set(trials(client, report)) == {("acme/hello", 1)}
    assert [task.name for _, task in client.dataset_tasks(report.jobs[0].dataset)] == ["acme/hello", "never"]


# --- what it came to -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "reward", "dimensions"),
    [
        ({"reward": 1}, 1.0, None),
        ({"accuracy": 0.75}, 0.75, None),
        ({"reward": -0.0}, -0.0, None),
        ({"reward": 5e-324}, 5e-324, None),
        ({"style": 0.5, "reward": 0.25}, 0.25, {"style": 0.5}),
    ],
)
def test_one_key_is_the_reward_and_of_several_only_reward(
    client: Client, take: Take, job: Path, rewards: Any, reward: float, dimensions: Any
) -> None:
    """Whatever the only key is called; the others of several are dimensions."""
    found, _ = one(client, take, job, rewards)
    assert (found.status, found.reward) == ("succeeded", reward)
    assert (structured_result(found).dimensions if found.structured else None) == dimensions


@pytest.mark.parametrize(
    ("rewards", "why", "flag"),
    [
        ({"x": 1, "y": 2}, "no-reward-key", "no-reward-key"),
        ({}, "no-reward-key", "no-reward-key"),
        ({"reward": None}, "null", None),
        ({"reward": "1.0"}, "not-a-number", "reward-rejected"),
        ({"reward": True}, "not-a-number", "reward-rejected"),
        ({"reward": float("nan")}, "not-finite", "reward-rejected"),
        ([1.0], "not-a-number", "reward-rejected"),
        (None, "not-reported", None),
    ],
)
def test_what_is_no_reward_is_none(
    client: Client, take: Take, job: Path, rewards: Any, why: str, flag: str | None
) -> None:
    """Each with its reason; never a zero."""
    found, shown = one(client, take, job, rewards)
    assert (found.reward, why_no_reward(found)) == (None, why)
    assert flag is None or flag in shown


def test_rewards_that_are_null_are_told_so(client: Client, take: Take, job: Path) -> None:
    """The verifier ran and gave none; where the trial died, that says it."""
    write_job(job, [locked("a"), locked("b")])
    write_trial(job, "a__1", "a", verifier_result={"rewards": None})
    write_trial(job, "b__1", "b", verifier_result={"rewards": None}, exception_info=error("RuntimeError"))
    found = trials(client, take(job))
    assert why_no_reward(found["a", 1]) == "null"
    assert why_no_reward(found["b", 1]) == "trial-error"


def test_a_dimension_that_is_no_number_leaves_the_reward(client: Client, take: Take, job: Path) -> None:
    """The structured result is rejected as a whole; the trial and its reward stand."""
    found, _ = one(client, take, job, {"reward": 1, "style": "good"})
    assert found.reward == 1.0
    assert structured_result(found).why == "wrong-shape"


def test_more_dimensions_than_a_fact_holds_leave_the_reward(client: Client, take: Take, job: Path) -> None:
    """Nor does a name that no fact can hold refuse the run."""
    found, _ = one(client, take, job, {"reward": 1} | {f"d{n}": n for n in range(600)})
    assert (found.reward, structured_result(found).why) == (1.0, "wrong-shape")


@pytest.mark.parametrize(
    ("kind", "timing", "phase"),
    [
        ("EnvironmentStartTimeoutError", {}, "setup"),
        ("AgentTimeoutError", {"verifier": {"started_at": at(0.5)}}, "agent"),
        ("VerifierTimeoutError", {}, "verifier"),
        ("RuntimeError", {}, "unknown"),
        ("RuntimeError", {"environment_setup": {"started_at": at(0)}}, "setup"),
        ("RuntimeError", {"agent_execution": {"started_at": at(0.2)}}, "agent"),
        ("RuntimeError", {"agent_execution": {"started_at": at(0.2)}, "verifier": {"started_at": at(0.5)}}, "verifier"),
        ("RuntimeError", {"agent_execution": {"started_at": at(0.2)}, "verifier": {"started_at": at(0.95)}}, "agent"),
    ],
)
def test_a_failed_trial_says_in_which_phase(
    client: Client, take: Take, job: Path, kind: str, timing: dict[str, Any], phase: str
) -> None:
    """By the exception's type where that says it, else by what had begun when it was raised."""
    found, _ = one(client, take, job, None, exception_info=error(kind, occurred_at=at(0.9)), **timing)
    assert (found.status, found.error_type, found.phase, found.reward) == ("failed", kind, phase, None)
    assert found.message is not None
    assert client.artifacts.read_bytes(found.message, max_bytes=100) == b"it broke\nTraceback: ..."


def test_a_reward_counts_whatever_the_exit(client: Client, take: Take, job: Path) -> None:
    """Of a failed trial, and where Harbor says that the reward is not valid: that is a flag."""
    found, shown = one(client, take, job, {"reward": 1}, exception_info=error("ApiError"), reward_valid=False)
    assert (found.status, found.reward) == ("failed", 1.0)
    assert "tool-calls-reward-invalid" in shown


def test_no_reward_is_not_an_invalid_one(client: Client, take: Take, job: Path) -> None:
    """Harbor writes false for every trial without a reward, too."""
    _, shown = one(client, take, job, None, exception_info=error("ApiError"), reward_valid=False)
    assert "tool-calls-reward-invalid" not in shown


def test_a_canceled_trial_is_canceled(client: Client, take: Take, job: Path) -> None:
    """Only that one exception says so."""
    found, _ = one(client, take, job, None, exception_info=error("CancelledError"))
    assert (found.status, why_no_reward(found)) == ("canceled", "canceled")


def test_steps_are_dimensions_and_a_failed_step_fails_the_trial(client: Client, take: Take, job: Path) -> None:
    """The trial's own result is the reward; the first step that died says how."""
    steps = [
        {"step_name": "plan", "verifier_result": {"rewards": {"reward": 1.0}}},
        {"step_name": "act", "exception_info": error("OSError"), "agent_execution": {"started_at": at(0.1)}},
    ]
    files = {"steps/plan/verifier/test-stdout.txt": "ok", "steps/plan/verifier/reward.txt": "1"}
    found, _ = one(client, take, job, {"reward": 0.5}, step_results=steps, files=files)
    assert (found.status, found.error_type, found.phase, found.reward) == ("failed", "OSError", "agent", 0.5)
    assert structured_result(found).dimensions == {"plan.reward": 1.0}
    assert found.artifacts_kept == 2
    assert client.artifacts.read_bytes(found.message or "", max_bytes=100).startswith(b"Step act:\nit broke")


@pytest.mark.parametrize(
    ("files", "differ"),
    [
        ({}, False),
        ({"reward.txt": "1.0\n"}, False),
        ({"reward.json": '{"reward": 1}', "reward.txt": "1"}, False),
        ({"reward.txt": "0"}, True),
        ({"reward.txt": "passed"}, True),
        ({"reward.json": '{"reward": 1, "style": 1}'}, True),
        ({"reward.json": "{"}, True),
        ({"reward.json": '{"reward": 1}', "reward.txt": "0"}, True),
    ],
)
def test_the_result_stands_and_the_verifiers_files_only_raise_a_flag(
    client: Client, take: Take, job: Path, files: dict[str, str], differ: bool
) -> None:
    """Whichever of the two a version would take: that they do not agree is shown."""
    found, shown = one(client, take, job, {"reward": 1.0}, files={f"verifier/{name}": files[name] for name in files})
    assert found.reward == 1.0
    assert ("reward-files-disagree" in shown) == differ


def test_times_of_trials_are_utc_and_those_of_jobs_are_not(client: Client, take: Take, job: Path) -> None:
    """A trial's time without an offset is dropped; it still gives the order."""
    found, shown = one(client, take, job, {"reward": 1}, started_at="2026-03-02T02:00:00+01:00", finished_at=at(2))
    assert (found.started_us, found.duration_s) == (1772413200_000000, 120.0)
    assert "time-zone-unknown" in shown
    write_job(job, [locked("a")] * 2, k=2, job_id="another", started_at=at(0), finished_at=at(9))
    write_trial(job, "a__1", "a", {"reward": 0.5}, started_at="2026-03-02T03:00:00", finished_at=None)
    write_trial(job, "a__2", "a", {"reward": 1}, start=1)
    report = take(job)
    assert trials(client, report)["a", 2].reward == 0.5
    assert "time-zone-unknown" in flags(report)


# --- files -----------------------------------------------------------------------------------------------------------


def test_what_a_trial_left_becomes_its_artifacts(client: Client, take: Take, job: Path) -> None:
    """The verifier's output, the trajectory, and what the manifest says was collected, each by its path."""
    manifest = [
        {"destination": "logs/answer.txt", "status": "ok"},
        {"destination": "deep", "status": "ok", "type": "directory"},
        {"destination": "var/app.log", "status": "failed"},
        {"destination": "gone.txt", "status": "ok"},
        {"destination": "../../secret", "status": "ok"},
        {"destination": "/etc/passwd", "status": "ok"},
        {"destination": "link/secret", "status": "ok"},
        {"destination": "nothing", "status": "empty"},
        {"destination": "a\u0000b", "status": "ok"},
    ]
    files = {
        "verifier/test-stdout.txt": "out",
        "verifier/test-stderr.txt": "err",
        "agent/trajectory.json": "{}",
        "agent/other.log": "not kept",
        "artifacts/manifest.json": json.dumps(manifest),
        "artifacts/logs/answer.txt": "42",
        "artifacts/deep/er/文 件.txt": "x",
        "artifacts/not-listed.txt": "x",
    }
    write(job.parent / "secret", "secret")
    write_job(job, [locked("a")])
    folder = write_trial(job, "a__1", "a", {"reward": 1}, files=files)
    (folder / "artifacts/link").symlink_to(job.parent)
    (folder / "artifacts/deep/passwd").symlink_to("/etc/passwd")
    report = take(job)
    assert trials(client, report)["a", 1].artifacts_kept == 5
    facts = [had.entry.fact for had in client.ledger.stream(trial_stream(report.jobs[0].id, "a", 1))]
    kept = {fact.name: fact.role for fact in facts if isinstance(fact, ArtifactPersisted)}
    assert kept == {
        "verifier/test-stdout.txt": "stdout",
        "verifier/test-stderr.txt": "stderr",
        "agent/trajectory.json": "output",
        "artifacts/logs/answer.txt": "output",
        "artifacts/deep/er/文 件.txt": "output",
    }
    assert {fact.name: fact.why for fact in facts if isinstance(fact, ArtifactFailed)} == {
        "artifacts/var/app.log": "missing",
        "artifacts/gone.txt": "missing",
        "artifacts/../../secret": "not-a-file",
        "artifacts//etc/passwd": "not-a-file",
        "artifacts/link/secret": "not-a-file",
        "artifacts/a\\x00b": "not-a-file",
        "artifacts/deep/passwd": "unreadable",
    }


def test_a_file_beyond_the_cap_is_told_and_the_trial_stands(client: Client, take: Take, job: Path) -> None:
    """A large artifact is not kept; a large result refuses the run."""
    write_job(job, [locked("a")])
    write_trial(job, "a__1", "a", {"reward": 1}, files={"artifacts/big.bin": "x" * 5_000})
    report = take(job, file_bytes_max=4_000)
    assert (trials(client, report)["a", 1].artifacts_kept, trials(client, report)["a", 1].artifacts_failed) == (0, 1)
    assert "larger than 100 bytes" in take(job, file_bytes_max=100).refused[0].why


def test_without_artifacts_nothing_is_copied(client: Client, take: Take, job: Path) -> None:
    """The sources are still named by their digests, so it is the same run."""
    write_job(job, [locked("a")])
    write_trial(job, "a__1", "a", {"reward": 1}, files={"verifier/test-stdout.txt": "out"})
    assert trials(client, take(job, keep_artifacts=False))["a", 1].artifacts_kept == 0
    assert take(job).jobs[0].outcome == "unchanged"


# --- the same run ----------------------------------------------------------------------------------------------------


def test_a_renamed_copy_is_the_same_run_and_other_bytes_are_a_conflict(take: Take, job: Path) -> None:
    """A run is known by Harbor's own id for it, wherever it lies; what differs is named."""
    write_job(job, [locked("a")])
    trial = write_trial(job, "a__1", "a", {"reward": 1}, files={"verifier/test-stdout.txt": "out"})
    first = take(job).jobs[0]
    copy = Path(shutil.copytree(job, job.parent / "elsewhere" / "renamed"))
    assert [(done.id, done.outcome) for done in take(copy).jobs] == [(first.id, "unchanged")]
    write(trial / "verifier/test-stdout.txt", "tampered")
    (refused,) = take(job).refused
    assert refused.outcome == "conflict"
    assert "a__1/verifier/test-stdout.txt has other content" in refused.why
    assert JOB_ID in refused.why


def test_a_nested_copy_is_skipped_and_flagged(client: Client, take: Take, job: Path) -> None:
    """A run inside of another is no trial of it; another run there is a job of its own."""
    write_job(job, [locked("a")])
    write_trial(job, "a__1", "a", {"reward": 1})
    outer = write_job(job.parent / "outer", [locked("b")], job_id="outer-id")
    write_trial(outer, "b__1", "b", {"reward": 0})
    shutil.copytree(job, outer / "copy")
    inner = write_job(outer / "inner", [locked("c")], job_id="inner-id")
    write_trial(inner, "c__1", "c", {"reward": 1})
    report = take(job.parent)
    assert report.refused == []
    assert len(report.jobs) == 3
    assert [{*client.result(done.id).flags} & {"nested-run-skipped"} for done in report.jobs] == [
        {"nested-run-skipped"},
        set(),
        set(),
    ]


def test_what_an_agent_left_is_no_run(take: Take, job: Path) -> None:
    """An agent may run Harbor itself; hidden folders and links are not looked into either."""
    write_job(job, [locked("a")])
    trial = write_trial(job, "a__1", "a", {"reward": 1})
    write_job(trial / "artifacts/jobs/fake", [locked("x")], job_id="fake")
    write_job(job / ".sources/fake", [locked("x")], job_id="fake")
    (job / "linked").symlink_to(trial / "artifacts/jobs")
    assert len(take(job.parent).jobs) == 1


def test_a_folder_of_many_jobs_takes_the_good_ones(take: Take, job: Path) -> None:
    """The bad one is reported. The same tasks under two versions are two revisions when nobody names one."""
    for number, version in enumerate(("0.25.0", "0.26.0")):
        folder = write_job(job.parent / f"j{number}", [locked("a")], job_id=f"id-{number}", version=version)
        write_trial(folder, "a__1", "a", {"reward": 1})
    write(job.parent / "bad/config.json", '{"job_name": "x", "job_name": "y"}')
    report = take(job.parent)
    assert [done.outcome for done in report.jobs] == ["imported", "imported"]
    assert len({done.dataset for done in report.jobs}) == 2
    assert "'job_name' twice" in report.refused[0].why


def test_a_copied_trial_counts_once_and_a_contradiction_is_refused(client: Client, take: Take, job: Path) -> None:
    """By Harbor's own id of the trial."""
    write_job(job, [locked("a")])
    folder = write_trial(job, "a__1", "a", {"reward": 1})
    copy = Path(shutil.copytree(folder, job / "a__1 (copy)"))
    changed = json.loads((copy / "result.json").read_text()) | {"verifier_result": {"rewards": {"reward": 0}}}
    write(copy / "result.json", changed)
    why = refusal(client, take(job))
    assert "a__1 and a__1 (copy)" in why
    shutil.copy(folder / "result.json", copy / "result.json")
    report = take(job)
    assert set(trials(client, report)) == {("a", 1)}
    assert "duplicate-rows-dropped" in flags(report)


# --- what Harbor printed ---------------------------------------------------------------------------------------------


def test_printed_numbers_are_kept_beside_ours(take: Take, job: Path) -> None:
    """Under Harbor's names; a number that our formulas do not give is flagged."""
    printed = {"n_trials": 2, "n_errors": 0, "metrics": [{"mean": 0.5}, {"max": 1}], "pass_at_k": {"2": 1.0}}
    write_job(job, [locked("a")] * 2, k=2, evals={"demo__m-1__acme/mini": printed})
    write_trial(job, "a__1", "a", {"reward": 1}, start=1)
    write_trial(job, "a__2", "a", {"reward": 0}, start=2)
    (done,) = take(job).jobs
    said = {name: done.as_reported[name] for name in ("agent_version", "n_trials", "mean", "max", "pass@2")}
    assert said == {"agent_version": "1.0", "n_trials": 2, "mean": 0.5, "max": 1, "pass@2": 1.0}
    assert "as-reported-differs" not in done.flags


@pytest.mark.parametrize(
    "printed",
    [
        {"metrics": [{"mean": 0.25}]},
        {"metrics": [{"mean": None}]},
        {"metrics": [{"mean": 0.5}], "pass_at_k": {"2": 0.5}},
        {"metrics": [{"mean": 0.5}], "pass_at_k": {"4": 1.0}},
        {"metrics": [{"reward": 0.4, "style": 1}]},
    ],
)
def test_a_printed_number_that_differs_is_flagged(take: Take, job: Path, printed: Any) -> None:
    """Also one that we do not give."""
    write_job(job, [locked("a")] * 2, k=2, evals={"demo__m-1__acme/mini": printed})
    write_trial(job, "a__1", "a", {"reward": 1}, start=1)
    write_trial(job, "a__2", "a", {"reward": 0}, start=2)
    assert "as-reported-differs" in flags(take(job))


def test_numbers_no_float_holds_are_kept_as_text(take: Take, job: Path) -> None:
    """NaN is no JSON and no number of ours."""
    write_job(job, [locked("a")], stats={"evals": {"demo__m-1__acme/mini": {"metrics": [{"mean": float("nan")}]}}})
    write_trial(job, "a__1", "a", {"reward": 1})
    assert take(job).jobs[0].as_reported["mean"] == "NaN"


@pytest.mark.parametrize(
    ("version", "policy"),
    [("0.25.9", "harbor-0.25"), ("0.26.0", "harbor-0.26"), ("1.0", "harbor-0.26"), (None, None), ("main", None)],
)
def test_the_policy_is_that_of_the_version(
    client: Client, take: Take, job: Path, version: str | None, policy: str | None
) -> None:
    """What is unknown is not guessed; a person may name one."""
    write_job(job, [locked("a")], version=version)
    write_trial(job, "a__1", "a", {"reward": 1})
    assert client.job(take(job).jobs[0].id).origin.get("policy") == policy


# --- what is not whole, and what is hostile --------------------------------------------------------------------------


def test_a_run_that_goes_on_gives_what_has_ended(client: Client, take: Take, job: Path) -> None:
    """Its other slots stay empty, and that is flagged; in a run that ended, a result is lost."""
    write_job(job, [locked("a"), locked("b")], ended=False)
    write_trial(job, "a__1", "a", {"reward": 1})
    begin_trial(job, "b__1", "b")
    report = take(job)
    assert set(trials(client, report)) == {("a", 1)}
    assert "run-unfinished" in flags(report)
    write_job(job, [locked("a"), locked("b")], job_id="another")
    assert "source-incomplete" in flags(take(job))


@pytest.mark.parametrize("document", ["config.json", "lock.json", "result.json", "a__1/result.json", "a__1/lock.json"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_cut_document_leaves_what_is_whole(
    client: Client, take: Take, job: Path, document: str, share: float
) -> None:
    """Wherever it was cut; with --strict nothing is imported, except that a trial's lock repeats the job's."""
    write_job(job, [locked("a"), locked("b")])
    write_trial(job, "a__1", "a", {"reward": 1})
    write_trial(job, "b__1", "b", {"reward": 0})
    data = (job / document).read_bytes()
    (job / document).write_bytes(data[: int(len(data) * share)])
    if document != "a__1/lock.json":
        assert "cut off" in refusal(client, take(job, strict=True))
    report = take(job)
    found = trials(client, report)
    assert found["b", 1].reward == 0.0
    assert ("a", 1) in found or document == "a__1/result.json"
    if document != "a__1/lock.json":
        assert "source-incomplete" in flags(report)


@pytest.mark.parametrize(
    ("document", "text", "says"),
    [
        ("lock.json", '{"trials": [], "trials": [], "n_concurrent_trials": 1}', "'trials' twice"),
        ("lock.json", '{"n_concurrent_trials": 1, "trials": [{"task": {"name": 7}}]}', "lock.json"),
        ("lock.json", '{"n_concurrent_trials": 1, "trials": "x"}', "lock.json"),
        ("config.json", '{"job_name": "x", "n_attempts": 0}', "config.json"),
        ("config.json", '{"job_name": "x"} and more', "config.json"),
        ("result.json", '{"id": 7, "n_total_trials": 1}', "result.json"),
        ("a__1/result.json", '{"task_name": "a", "trial_name": "t", "trial_name": "t"}', "'trial_name' twice"),
        ("a__1/result.json", '{"task_name": "a"}', "trial_name"),
        ("a__1/result.json", '{"task_name": 1, "trial_name": "t"}', "task_name"),
        ("a__1/result.json", '{"task_name": "a\\nb", "trial_name": "t"}', "control character"),
        ("a__1/result.json", '{"task_name": "\\ud800", "trial_name": "t"}', "surrogate"),
        ("a__1/result.json", '{"task_name": "a", "trial_name": "t", "started_at": "soon"}', "started_at"),
        ("a__1/result.json", '{"task_name": "a", "trial_name": "t", "x": ' + "[" * 500 + "]" * 500 + "}", "nested"),
    ],
)
def test_a_document_of_the_wrong_form_refuses_the_run(
    client: Client, take: Take, job: Path, document: str, text: str, says: str
) -> None:
    """One sentence that names the file; nothing is written."""
    write_job(job, [locked("a")])
    write_trial(job, "a__1", "a", {"reward": 1})
    write(job / document, text)
    why = refusal(client, take(job))
    assert says in why
    assert Path(document).name in why
    assert "\n" not in why


def test_documents_that_contradict_each_other_are_refused(client: Client, take: Take, job: Path) -> None:
    """A trial that nobody asked for, a task with two contents, an exception without a name."""
    write_job(job, [locked("a")])
    write_trial(job, "b__1", "b", {"reward": 1})
    assert "asks for no trial" in refusal(client, take(job))
    shutil.rmtree(job / "b__1")
    write_trial(job, "a__1", "a", {"reward": 1}, agent=OTHER)
    assert "'other'" in refusal(client, take(job))
    folder = write_trial(job, "a__1", "a", {"reward": 1})
    write(folder / "lock.json", locked("a", digest="f" * 64))
    assert "another digest" in refusal(client, take(job))
    write_trial(job, "a__1", "a", None, exception_info=error(""))
    assert "exception_type is empty" in refusal(client, take(job))
    write_trial(job, "a__1", "a", {"reward": 1})
    write_job(job, [locked("a"), locked("a", digest="f" * 64)])
    assert "two digests" in refusal(client, take(job))


def test_what_is_no_job_is_told(client: Client, take: Take, job: Path) -> None:
    """A file, a trial, an empty folder, nothing at all, a job whose documents are links."""
    write_job(job, [locked("a")])
    trial = write_trial(job, "a__1", "a", {"reward": 1})
    assert "is a file" in refusal(client, take(job / "config.json"))
    assert "one trial" in refusal(client, take(trial))
    (job.parent / "empty").mkdir()
    assert "no job of Harbor" in refusal(client, take(job.parent / "empty"))
    assert "nothing at" in refusal(client, take(job / "nowhere"))
    (job / "lock.json").rename(job.parent / "lock.json")
    (job / "lock.json").symlink_to(job.parent / "lock.json")
    assert "symbolic link" in refusal(client, take(job))


def test_names_survive(client: Client, take: Take, job: Path) -> None:
    """Slashes, spaces, any script, in tasks, agents and sources."""
    agent = {"name": "代理 | x", "model_name": None}
    write_job(job, [locked("acme/文 件/x", agent, source=None)])
    write_trial(job, "x__1", "acme/文 件/x", {"reward": 1}, agent=agent, source=None)
    report = take(job)
    assert set(trials(client, report)) == {("acme/文 件/x", 1)}
    assert report.jobs[0].as_reported["agent"] == "代理 | x"


def test_the_agent_is_known_without_its_configuration(client: Client, take: Take, job: Path) -> None:
    """As it named itself."""
    write_job(job, None)
    folder = write_trial(job, "a__1", "a", {"reward": 1}, config={})
    (folder / "lock.json").unlink()
    assert take(job).jobs[0].as_reported["model"] == AGENT["model_name"]
