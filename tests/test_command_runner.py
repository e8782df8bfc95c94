"""Promises of the command runner: six signals from real processes, nothing invented, leaked or left running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from api.runners import command, keeping, sandbox
from api.runners.command import Outcome, run_trial
from api.runners.plans import JobPlan
from api.runners.sandbox import Stop
from api.runners.sources import Source
from ledger.artifacts import ArtifactStore
from ledger.facts.catalogue import RunnerPublished, Scalar
from ledger.facts.trial import (
    ArtifactFailed,
    ArtifactPersisted,
    RewardRecorded,
    RewardRejected,
    Slot,
    StructuredResultRecorded,
    StructuredResultRejected,
    TrialCanceled,
    TrialDispatched,
    TrialFact,
    TrialFailed,
    TrialStarted,
    TrialSucceeded,
    trial_id_for,
)
from ledger.rules.asking import rules_returning
from ledger.rules.trial import Trial, evolve
from tests.given_commands import REWARD_1, is_alive, runner_of, task_folders, until

JOB_ID = "6f1f4c1e-7f5b-4a51-9d2c-0f3f5f0d9a11"
SECRET = "sk-live-0123456789abcdef"


class Ran(NamedTuple):
    """A trial that was run: its facts, as the ledger's rules gave them, and its artifacts' contents."""

    facts: list[TrialFact]
    outcome: Outcome
    store: ArtifactStore

    @property
    def graded(self) -> RewardRecorded | RewardRejected | None:
        found = [fact for fact in self.facts if isinstance(fact, RewardRecorded | RewardRejected)]
        assert len(found) <= 1
        return found[0] if found else None

    @property
    def structured(self) -> StructuredResultRecorded | StructuredResultRejected | None:
        found = [f for f in self.facts if isinstance(f, StructuredResultRecorded | StructuredResultRejected)]
        return found[0] if found else None

    @property
    def kept(self) -> dict[str, bytes]:
        return {fact.name: self.read(fact.sha256) for fact in self.facts if isinstance(fact, ArtifactPersisted)}

    @property
    def not_kept(self) -> dict[str, str]:
        return {fact.name: fact.why for fact in self.facts if isinstance(fact, ArtifactFailed)}

    @property
    def message(self) -> str:
        assert isinstance(self.outcome.ended, TrialFailed)
        assert self.outcome.ended.message
        return self.read(self.outcome.ended.message).decode()

    def read(self, sha256: str) -> bytes:
        return self.store.read_bytes(sha256, max_bytes=200_000_000)


def run(
    tmp_path: Path,
    runner: RunnerPublished,
    *,
    secrets: dict[str, str] | None = None,
    parameters: dict[str, Scalar] | None = None,
    stop: Stop | None = None,
) -> Ran:
    """Run the one trial of a one-task dataset, and ask the ledger's own rules for its facts."""
    folder = tmp_path / "dataset"
    (task,) = task_folders(folder, ["t1"]) if not folder.exists() else [command.Task("t1", "0" * 64)]
    plan = JobPlan(JOB_ID, runner, Source("folder", folder), parameters or {})
    plan.take_secrets(secrets or {})
    store = ArtifactStore(tmp_path / "artifacts")
    slot = Slot(JOB_ID, 1, "t1")
    outcome = run_trial(plan, slot, task, store, stop or Stop())
    dispatched = TrialDispatched(trial_id_for(JOB_ID, "t1", 1), JOB_ID, "t1", task.digest, 1, "w")
    state: Trial = evolve(evolve(None, dispatched), TrialStarted())
    facts: list[TrialFact] = []
    for rule in rules_returning(outcome.facts):
        for fact in rule(state):
            facts.append(fact)
            state = evolve(state, fact)
    assert state.ended == outcome.ended
    return Ran(facts, outcome, store)


# --- how a trial ends ---------------------------------------------------------------------------------------


def test_a_trial_that_ends_well(tmp_path: Path) -> None:
    """Exit code, duration and reward are three signals; the task's content and the folders are where it is told."""
    ran = run(
        tmp_path, runner_of("cat {task}/question.txt; pwd; sleep 0.1", "grep -q t1 {task}/question.txt && " + REWARD_1)
    )
    assert isinstance(ran.outcome.ended, TrialSucceeded)
    assert ran.outcome.ended.exit_code == 0
    assert 0.1 <= ran.outcome.ended.duration_s == round(ran.outcome.ended.duration_s, 3) < 5
    assert ran.graded == RewardRecorded(1.0, "reward.txt")
    question, place = ran.kept["agent/stdout.txt"].decode().splitlines()
    assert question == "what is t1?"
    assert place.endswith("/work")
    assert not Path(place).exists()


@pytest.mark.parametrize(
    ("agent", "verifier", "ended"),
    [
        ("exit 3", REWARD_1, TrialFailed("ExitCode", "agent", 3)),
        ("kill -KILL $$", REWARD_1, TrialFailed("Signal SIGKILL", "agent")),
        ("kill -SEGV $$", REWARD_1, TrialFailed("Signal SIGSEGV", "agent")),
        ("sleep 30", REWARD_1, TrialFailed("Timeout", "agent")),
        ("true", REWARD_1 + "; exit 7", TrialFailed("ExitCode", "verifier", 7)),
        ("true", REWARD_1 + "; sleep 30", TrialFailed("Timeout", "verifier")),
        ("exit 3", REWARD_1 + "; exit 7", TrialFailed("ExitCode", "agent", 3)),
    ],
)
def test_a_failed_trial_may_have_a_reward(tmp_path: Path, agent: str, verifier: str, ended: TrialFailed) -> None:
    """Crash, signal, time limit, of the agent or of the verifier: the verifier runs, and its reward counts."""
    ran = run(tmp_path, runner_of(agent, verifier, timeout_s=0.4))
    found = ran.outcome.ended
    assert isinstance(found, TrialFailed)
    assert (found.error_type, found.phase, found.exit_code) == (ended.error_type, ended.phase, ended.exit_code)
    assert ran.graded == RewardRecorded(1.0, "reward.txt")
    assert ran.message.startswith(f"{ended.phase}: The process ")


def test_a_trial_out_of_time_may_have_no_reward(tmp_path: Path) -> None:
    """No reward is a fact of its own, beside the failure, and never 0."""
    ran = run(tmp_path, runner_of("sleep 30", "true", timeout_s=0.3))
    assert ran.graded == RewardRejected("not-reported")
    assert ran.outcome.reward is None
    assert isinstance(ran.outcome.ended, TrialFailed)


def test_what_ignores_the_polite_signal_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace period nobody is asked any more."""
    monkeypatch.setattr(sandbox, "GRACE_S", 0.3)
    monkeypatch.setitem(sandbox.run_step.__kwdefaults__, "grace_s", 0.3)
    started = time.monotonic()
    ran = run(tmp_path, runner_of("trap '' TERM; while :; do sleep 0.05; done", timeout_s=0.3))
    assert time.monotonic() - started < 5
    assert isinstance(ran.outcome.ended, TrialFailed)
    assert ran.outcome.ended.error_type == "Timeout"


def test_an_agent_that_cannot_be_started_is_a_failed_setup(tmp_path: Path) -> None:
    """Then nothing was tried, so nothing is graded: no reward, not even a bad one."""
    runner = runner_of("true", "echo 0 > {output}/reward.txt")
    assert runner.agent
    step = type(runner.agent)(("el-no-such-command",), 1.0)
    ran = run(tmp_path, command.msgspec.structs.replace(runner, agent=step))
    ended = ran.outcome.ended
    assert isinstance(ended, TrialFailed)
    assert (ended.error_type, ended.phase, ended.exit_code) == ("CommandNotFound", "setup", None)
    assert ran.graded is None
    assert "'el-no-such-command' was not found" in ran.message


def test_the_message_is_an_artifact_with_the_end_of_stderr(tmp_path: Path) -> None:
    """Free text stays out of the fact; what a person looks for first is in the message."""
    ran = run(tmp_path, runner_of("yes noise | head -c 20000 >&2; echo the last words >&2; exit 1"))
    assert ran.message.endswith("the last words\n")
    assert len(ran.message) < 9_000


def test_changed_task_content_is_a_failed_setup(tmp_path: Path) -> None:
    """Content other than what was published is never run."""
    task_folders(tmp_path / "dataset", ["t1"])
    ran = run(tmp_path, runner_of(f"touch {tmp_path}/ran"))  # with a digest that is not the folder's
    ended = ran.outcome.ended
    assert isinstance(ended, TrialFailed)
    assert (ended.error_type, ended.phase) == ("TaskContentChanged", "setup")
    assert "its sha256 is now" in ran.message
    assert not (tmp_path / "ran").exists()


def test_a_canceled_trial_is_not_graded(tmp_path: Path) -> None:
    """Called off means called off: the agent is stopped at once and the verifier does not run."""
    stop = Stop()
    threading.Timer(0.3, stop.ask, ["job canceled"]).start()
    started = time.monotonic()
    ran = run(tmp_path, runner_of("echo begun; sleep 30", f"touch {tmp_path}/graded"), stop=stop)
    assert time.monotonic() - started < 5
    assert ran.outcome.ended == TrialCanceled("job canceled")
    assert ran.graded is None
    assert not (tmp_path / "graded").exists()
    assert ran.kept == {"agent/stdout.txt": b"begun\n"}


# --- rewards ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "json_", "expected"),
    [
        ("0.25\n", None, 0.25),
        (None, "0.25", 0.25),
        (None, '{"accuracy": 0.5}', 0.5),
        (None, '{"reward": 1, "time_s": 3}', 1.0),
        ("1", '{"reward": 1.0}', 1.0),
        (" -3e2 ", None, -300.0),
        (None, "\ufeff1", 1.0),
        (None, None, "not-reported"),
        ("1", "0", "conflicting"),
        ("1", "NaN", "conflicting"),
        (None, '{"reward": 1, "reward": 1}', "conflicting"),
        ("NaN", None, "not-finite"),
        (None, "NaN", "not-finite"),
        (None, '{"reward": -Infinity}', "not-finite"),
        ("1e309", None, "not-finite"),
        (None, "1e309", "not-finite"),
        (None, "9" * 5_000, "not-finite"),
        ("inf", "Infinity", "not-finite"),
        (None, "null", "null"),
        (None, '{"reward": null}', "null"),
        (None, "true", "not-a-number"),
        (None, '"1"', "not-a-number"),
        (None, "[1]", "not-a-number"),
        (None, "[" * 60_000, "not-a-number"),
        (None, "", "not-a-number"),
        ("", None, "not-a-number"),
        ("passed", None, "not-a-number"),
        ("1_000", None, "not-a-number"),
        ("0x10", None, "not-a-number"),
        ("٣", None, "not-a-number"),
        ("1 2", None, "not-a-number"),
        ("1" + " " * 70_000, None, "not-a-number"),
        (None, '{"a": 1, "b": 2}', "no-reward-key"),
        (None, "{}", "no-reward-key"),
    ],
)
def test_a_reward_is_a_finite_number_or_a_reason(
    tmp_path: Path, text: str | None, json_: str | None, expected: float | str
) -> None:
    """Strictly read: nothing becomes 0, NaN or infinity, and the reason there is none is told."""
    for name, content in (("reward.txt", text), ("reward.json", json_)):
        if content is not None:
            (tmp_path / name).write_text(content)
    ran = run(tmp_path, runner_of("true", f"cp {tmp_path}/reward.* {{output}}/ 2>/dev/null; true"))
    assert isinstance(ran.outcome.ended, TrialSucceeded)
    if isinstance(expected, float):
        assert isinstance(ran.graded, RewardRecorded)
        assert ran.graded.reward == expected
        return
    assert isinstance(ran.graded, RewardRejected)
    assert ran.graded.why == expected
    wrote = [content for content in (text, json_) if content is not None]
    if wrote:
        assert ran.graded.raw
        assert ran.read(ran.graded.raw) == b"\n".join(content.encode()[: 64 * 1024] for content in wrote)
    else:
        assert ran.graded.raw is None


def test_the_other_numbers_of_a_reward_are_dimensions(tmp_path: Path) -> None:
    """They keep their own names and are no part of the reward; what is no number stays in the artifact."""
    text = json.dumps({"time_s": 3, "reward": 0.5, "note": "x", "ok": True, "cost": 0.1})
    ran = run(tmp_path, runner_of("true", f"echo '{text}' > {{output}}/reward.json"))
    assert ran.graded == RewardRecorded(0.5, "reward.json")
    assert ran.structured == StructuredResultRecorded(None, {"time_s": 3.0, "cost": 0.1})
    assert json.loads(ran.kept["output/reward.json"])["note"] == "x"


@pytest.mark.parametrize("trick", ["ln -s /etc/hostname {output}/reward.txt", "mkfifo {output}/reward.txt",
                                   "mkdir {output}/reward.txt", "rm -r {output}; ln -s {work} {output}; "
                                   "echo 1 > {work}/reward.txt"])  # fmt: skip
def test_a_reward_that_is_no_file_is_none(tmp_path: Path, trick: str) -> None:
    """Links, fifos and folders are not read, so nothing outside the trial's folder becomes a reward or an artifact."""
    ran = run(tmp_path, runner_of("true", trick))
    assert ran.graded == RewardRejected("not-reported")
    assert ran.not_kept.get("output/reward.txt") == "not-a-file"


def test_a_reward_that_the_agent_wrote_does_not_count(tmp_path: Path) -> None:
    """Only the verifier grades. What the agent put there is kept as its own, so that somebody can see it."""
    ran = run(tmp_path, runner_of("echo 1 > {output}/reward.txt; mkdir {output}/reward.json", "true"))
    assert ran.graded == RewardRejected("not-reported")
    assert ran.kept == {"agent/reward.txt": b"1\n"}


def test_the_verifier_sees_the_task_as_published(tmp_path: Path) -> None:
    """An agent that rewrites the tests in the task's folder does not change what it is measured by."""
    verifier = "grep -q 'what is t1' {task}/question.txt && echo 0 > {output}/reward.txt"
    ran = run(tmp_path, runner_of("echo easy > {task}/question.txt; touch {task}/more", verifier))
    assert isinstance(ran.outcome.ended, TrialSucceeded)
    assert ran.graded == RewardRecorded(0.0, "reward.txt")


def test_an_agent_that_wrecks_its_folders_is_still_graded(tmp_path: Path) -> None:
    """Folders that were removed, replaced or locked are made usable again for the verifier."""
    ran = run(tmp_path, runner_of('rm -rf "$HOME"/*; ln -s / {work}; echo x > {output}', "touch {work}/w; " + REWARD_1))
    assert isinstance(ran.outcome.ended, TrialSucceeded)
    assert ran.graded == RewardRecorded(1.0, "reward.txt")


# --- the structured result ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "missing"),
        ("{", "not-json"),
        ('{"composite": NaN}', "not-json"),
        ("[1]", "wrong-shape"),
        ("{}", "wrong-shape"),
        ('{"composit": 1}', "wrong-shape"),
        ('{"composite": true}', "wrong-shape"),
        ('{"composite": 1e309}', "wrong-shape"),
        ('{"dimensions": {"a": "1"}}', "wrong-shape"),
        ('{"dimensions": {"a": 1, "a": 2}}', "wrong-shape"),
        ('{"dimensions": {"": 1}}', "wrong-shape"),
        ('{"judge": 1}', "wrong-shape"),
        ('{"judge": "' + "x" * (1024 * 1024) + '"}', "too-large"),
    ],
)
def test_a_structured_result_that_cannot_be_used_says_why(tmp_path: Path, text: str | None, why: str) -> None:
    """It never touches the reward, and what stood in the file stays readable."""
    if text is not None:
        (tmp_path / "result.json").write_text(text)
    verifier = f"{REWARD_1}; cp {tmp_path}/result.json {{output}}/ 2>/dev/null; true"
    ran = run(tmp_path, runner_of("true", verifier, structured_result="result.json"))
    assert isinstance(ran.structured, StructuredResultRejected)
    assert ran.structured.why == why
    assert (ran.structured.raw is None) == (text is None)
    assert ran.graded == RewardRecorded(1.0, "reward.txt")


def test_a_structured_result_keeps_its_parts_apart(tmp_path: Path) -> None:
    """Composite and dimensions are numbers of the fact; the judge's words are an artifact."""
    text = '{"composite": 2, "dimensions": {"style": 0.5}, "judge": "well done", "extra": [1]}'
    verifier = f"mkdir {{output}}/deep; echo '{text}' > {{output}}/deep/result.json; " + REWARD_1
    ran = run(tmp_path, runner_of("true", verifier, structured_result="deep/result.json"))
    assert isinstance(ran.structured, StructuredResultRecorded)
    assert (ran.structured.composite, ran.structured.dimensions) == (2.0, {"style": 0.5})
    assert ran.structured.judge
    assert ran.read(ran.structured.judge) == b"well done"
    assert "well done" not in str(ran.facts)


# --- artifacts ----------------------------------------------------------------------------------------------


def test_matching_files_are_kept(tmp_path: Path) -> None:
    """Globs reach into output/ and work/; a name without wildcards must be there; links are refused, not followed."""
    agent = "mkdir -p a/b; echo 1 > a/b/x.log; echo 2 > y.log; ln -s /etc/passwd z.log; echo 3 > {output}/patch.diff"
    ran = run(tmp_path, runner_of(agent, outputs=["**/*.log", "patch.diff", "report.txt", "a/*.log"]))
    assert ran.kept == {
        "work/a/b/x.log": b"1\n",
        "work/y.log": b"2\n",
        "output/patch.diff": b"3\n",
        "output/reward.txt": b"1\n",
    }
    assert ran.not_kept == {"work/z.log": "not-a-file", "report.txt": "missing"}


def test_too_many_or_too_large_files_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limits a file is a failed artifact, never silently gone."""
    monkeypatch.setattr(keeping, "OUTPUT_FILES_MAX", 2)
    monkeypatch.setattr(keeping, "OUTPUT_FILE_BYTES_MAX", 10)
    ran = run(tmp_path, runner_of("echo 12345678901 > a; echo b > b; echo c > c; echo d > d", "true", outputs=["?"]))
    assert ran.kept == {"work/b": b"b\n"}
    assert ran.not_kept == {"work/a": "too-large", "2 more files": "too-many"}


def test_strange_file_names_are_kept_readable(tmp_path: Path) -> None:
    """A name that no fact can hold is written with escapes."""
    ran = run(tmp_path, runner_of(r"""printf x > "$(printf 'a\nb\377.bin')" """, "true", outputs=["*.bin"]))
    assert ran.kept == {r"work/a\nb\xff.bin": b"x"}


def test_output_beyond_the_limit_is_cut_and_told(tmp_path: Path) -> None:
    """The first 10 MiB are kept, a failed artifact stands for the rest, and the process is not held up."""
    ran = run(tmp_path, runner_of("head -c 12000000 /dev/zero"))
    assert isinstance(ran.outcome.ended, TrialSucceeded)
    assert len(ran.kept["agent/stdout.txt"]) == sandbox.CAPTURE_BYTES_MAX
    assert ran.not_kept == {"agent/stdout.txt:rest": "too-large"}


# --- environment and secrets --------------------------------------------------------------------------------

NAMES = {
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "EL_TASK", "EL_TASK_DIR", "EL_ATTEMPT", "EL_JOB_ID", "EL_TRIAL_ID",
    "EL_WORK_DIR", "EL_OUTPUT_DIR",
}  # fmt: skip


def test_nothing_of_our_environment_is_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both processes get what the job says and nothing else; a process started plainly would get the canary."""
    monkeypatch.setenv("EL_CANARY", "sings")
    runner = runner_of("env -0", "env -0; " + REWARD_1)
    parameters: dict[str, Scalar] = {"MODEL": "m 1", "FAST": True, "RATE": 0.5, "N": 3, "EL_TASK": "spoofed"}
    ran = run(tmp_path, runner, parameters=parameters, secrets={"KEY": SECRET})
    for name in ("agent/stdout.txt", "verifier/stdout.txt"):
        lines = [line.split("=", 1) for line in ran.kept[name].decode().split("\0") if line]
        found = {line[0]: line[1] for line in lines}
        assert found.keys() - {"PWD", "OLDPWD", "SHLVL", "_"} == NAMES | {"MODEL", "FAST", "RATE", "N", "KEY"}
        assert (found["MODEL"], found["FAST"], found["RATE"], found["N"]) == ("m 1", "true", "0.5", "3")
        assert (found["EL_TASK"], found["EL_ATTEMPT"], found["EL_JOB_ID"]) == ("t1", "1", JOB_ID)
        assert found["KEY"] == "[secret]"
        assert found["TMPDIR"].startswith(found["HOME"])
    plain = subprocess.run(["env"], capture_output=True, check=True, text=True).stdout
    assert "EL_CANARY=sings" in plain


def test_python_and_the_folders_are_placeholders(tmp_path: Path) -> None:
    """`{python}` is this Python; the folders are absolute; other braces stay."""
    runner = runner_of("true")
    code = "import sys; print(sys.executable, *sys.argv[1:])"
    agent = type(runner.verifier)(("{python}", "-c", code, "{task}", "{work}", "{output}", "{x}"), 20.0)  # type: ignore[misc]
    ran = run(tmp_path, command.msgspec.structs.replace(runner, agent=agent))
    python, task, work, output, other = ran.kept["agent/stdout.txt"].decode().split()
    assert (python, other) == (sys.executable, "{x}")
    assert [Path(folder).name for folder in (task, work, output)] == ["task", "work", "output"]


def test_secrets_leave_no_trace(tmp_path: Path) -> None:
    """Out of stdout, stderr, messages, rewards, results, files and their names: no stored byte holds a value."""
    agent = 'echo $KEY; echo $KEY | base64; echo $KEY >&2; echo $KEY > "$KEY.txt"; exit 1'
    text = '{\\"dimensions\\": {\\"$KEY\\": 1}, \\"judge\\": \\"$KEY\\"}'
    verifier = f'echo $KEY > {{output}}/reward.txt; echo "{text}" > {{output}}/result.json'
    runner = runner_of(agent, verifier, outputs=["*.txt"], structured_result="result.json")
    ran = run(tmp_path, runner, secrets={"KEY": SECRET})
    assert ran.kept["agent/stdout.txt"].startswith(b"[secret]\n")
    assert ran.kept["work/[secret].txt"] == b"[secret]\n"
    assert isinstance(ran.structured, StructuredResultRecorded)
    assert ran.structured.dimensions == {"[secret]": 1.0}
    assert isinstance(ran.graded, RewardRejected)
    stored = b"".join(path.read_bytes() for path in (tmp_path / "artifacts").rglob("*") if path.is_file())
    assert b"[secret]" in stored
    assert SECRET.encode() not in stored
    assert SECRET not in repr(ran.facts)


def test_a_secret_torn_by_a_limit_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where output is cut in the middle of a value, the part before the cut is not kept either."""
    monkeypatch.setitem(sandbox.run_step.__kwdefaults__, "capture_bytes_max", 1_010)
    agent = "yes | head -c 1000; printf %s $KEY; yes | head -c 1000 >&2; printf %s $KEY >&2; exit 1"
    verifier = "yes | head -c 65530 > {output}/reward.txt; printf %s $KEY >> {output}/reward.txt"
    ran = run(tmp_path, runner_of(agent, verifier), secrets={"KEY": SECRET})
    assert isinstance(ran.graded, RewardRejected)
    assert ran.graded.raw
    texts = [*ran.kept.values(), ran.message.encode(), ran.read(ran.graded.raw)]
    assert len(texts) == 5
    assert not [text[-40:] for text in texts if SECRET[:4].encode() in text]


# --- nothing is left behind ---------------------------------------------------------------------------------

# A grandchild that outlives the agent: in the agent's group, in a session of its own, and deaf to SIGTERM.
LINGER = {
    "in the group": "sleep 60 & echo $! > PIDS; exit 0",
    "in its own session": "setsid sleep 60 & sleep 0.2; pgrep -f 'sleep 60' > /dev/null; echo $! > PIDS; exit 0",
    "deaf": "sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & echo $! > PIDS; sleep 60",
}


@pytest.mark.parametrize("how", LINGER)
def test_no_process_outlives_its_step(tmp_path: Path, how: str) -> None:
    """After a normal end, and after a time limit, every descendant is dead; killing the leader alone would not do."""
    script = LINGER[how].replace("PIDS", str(tmp_path / "pids"))
    run(tmp_path, runner_of(script, timeout_s=1.0))
    pid = int((tmp_path / "pids").read_text())
    until(lambda: not is_alive(pid), within_s=2)

    leader = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    until(lambda: (tmp_path / "pids").read_text().strip() not in {"", str(pid)})
    leader.kill()
    leader.wait()
    pid = int((tmp_path / "pids").read_text())
    assert is_alive(pid)  # the twin: without the runner's care it lives on
    os.kill(pid, 9)
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, 9)


def test_the_folder_is_private_and_removed(tmp_path: Path) -> None:
    """Mode 0700 while it runs; gone afterwards, whatever modes were set inside."""
    agent = "stat -c %a $HOME; echo $HOME; mkdir -p x/y; touch x/y/z; chmod 000 x/y; chmod 500 x"
    ran = run(tmp_path, runner_of(agent))
    mode, home = ran.kept["agent/stdout.txt"].decode().split()
    assert mode == "700"
    assert not Path(home).exists()


def test_no_input_is_waited_for(tmp_path: Path) -> None:
    """A process that reads its standard input gets nothing, at once."""
    ran = run(tmp_path, runner_of("wc -c"))
    assert ran.kept["agent/stdout.txt"].strip() == b"0"
