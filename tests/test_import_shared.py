"""What holds for every importer: one run is one job, recorded whole or not at all, and never twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import msgspec
import pytest

from api.client import Client, connect
from api.importers import jsonl, recording
from api.importers.importing import import_path
from api.importers.recording import import_run
from api.importers.run import Options, Run
from api.settings import Settings
from ledger.application import Ledger
from ledger.digests import digest_of_names
from ledger.errors import BadInput, ConcurrentWrite, Conflict
from ledger.facts.catalogue import RunnerPublished, Task
from ledger.facts.job import job_id_for
from ledger.facts.trial import trial_id_for
from tests.given import NASTY_NAMES

ROWS = [
    {"task": "alpha", "attempt": 1, "reward": 1},
    {"task": "alpha", "attempt": 2, "reward": 0},
    {"task": "beta", "attempt": 1, "error": {"type": "Lost", "message": "gone"}},
]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


def write(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run_of(path: Path, **changed: Any) -> Run:
    (run,) = jsonl.read(path, Options())
    return msgspec.structs.replace(run, **changed)


def test_the_report_is_what_the_command_prints(client: Client, tmp_path: Path) -> None:
    """The JSON of a report has exactly the fields that `el import --json` promises."""
    write(tmp_path / "runs/a.jsonl")
    (tmp_path / "runs/b.jsonl").write_text("nonsense\n")
    report = json.loads(msgspec.json.encode(import_path(client, "jsonl", tmp_path / "runs", Options(dataset="d@1"))))
    (job,) = client.jobs().jobs
    assert report == {
        "jobs": [
            {
                "id": job.id,
                "dataset": "d@1",
                "attempts": 2,
                "members": 2,
                "outcome": "imported",
                "entries_written": client.ledger.head().size - 1,
                "flags": [],
                "as_reported": {},
            }
        ],
        "refused": [{"path": str(tmp_path / "runs/b.jsonl"), "outcome": "refused", "why": report["refused"][0]["why"]}],
    }


def test_the_same_bytes_are_one_job(client: Client, tmp_path: Path) -> None:
    """From another folder and under another name, the second import writes nothing and says so."""
    first = import_path(client, "jsonl", write(tmp_path / "a.jsonl")).jobs[0]
    before = client.ledger.head()
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns(".el", "copy"))
    (tmp_path / "copy/a.jsonl").rename(tmp_path / "copy/b.jsonl")
    second = import_path(client, "jsonl", tmp_path / "copy/b.jsonl").jobs[0]
    assert (second.id, second.outcome, second.entries_written) == (first.id, "unchanged", 0)
    assert second.dataset == first.dataset
    assert client.ledger.head() == before


@pytest.mark.parametrize(
    "options", [{"attempts": 3}, {"dataset": "other@1"}, {"runner": "mine@2", "dataset": "mine@2"}]
)
def test_what_changes_the_meaning_is_another_job(client: Client, tmp_path: Path, options: dict[str, Any]) -> None:
    """Other bytes, another k, dataset or runner: another job beside the first."""
    path = write(tmp_path / "a.jsonl")
    first = import_path(client, "jsonl", path).jobs[0]
    second = import_path(client, "jsonl", path, Options(**options)).jobs[0]
    changed = import_path(client, "jsonl", write(path, ROWS[:2])).jobs[0]
    assert len({first.id, second.id, changed.id}) == 3
    assert {second.outcome, changed.outcome} == {"imported"}


def test_a_run_id_with_other_bytes_is_a_conflict(client: Client, tmp_path: Path) -> None:
    """Where a tool names its runs, the same run can be imported again, but not with other content."""
    first = import_run(client, run_of(write(tmp_path / "a.jsonl"), run_id="r1"), Options())
    assert import_run(client, run_of(write(tmp_path / "b.jsonl"), run_id="r1"), Options()).outcome == "unchanged"
    other = run_of(write(tmp_path / "a.jsonl", ROWS[:2]), run_id="r1")
    with pytest.raises(Conflict, match=first.id) as refusal:
        import_run(client, other, Options())
    assert refusal.value.differs == ("file a.jsonl has other content",)
    with pytest.raises(Conflict) as refusal:
        import_run(client, run_of(write(tmp_path / "a.jsonl"), run_id="r1"), Options(attempts=5))
    assert refusal.value.differs == ("attempts: 2, now 5",)


def test_an_import_is_whole_or_nothing(client: Client, tmp_path: Path) -> None:
    """A refusal at the last of many trials leaves neither dataset nor runner nor job."""
    twice = [{"name": "x", "sha256": character * 64, "size": 1} for character in "ab"]
    rows: list[dict[str, Any]] = [{"task": f"t{number}", "attempt": 1, "reward": 1} for number in range(2_500)]
    report = import_path(
        client, "jsonl", write(tmp_path / "a.jsonl", [*rows, rows[0] | {"task": "z", "artifacts": twice}])
    )
    assert report.jobs == []
    assert client.ledger.head().size == 1
    assert import_path(client, "jsonl", write(tmp_path / "a.jsonl", rows)).jobs[0].members == 2_500


def test_a_dry_run_says_what_it_would_write(client: Client, tmp_path: Path) -> None:
    """Planned counts are those of the import that follows; nothing is written, in the ledger or the artifacts."""
    path = write(tmp_path / "a.jsonl")
    planned = import_path(client, "jsonl", path, Options(dry_run=True)).jobs[0]
    assert planned.outcome == "planned"
    assert client.ledger.head().size == 1
    assert not client.artifacts.root.exists()
    done = import_path(client, "jsonl", path).jobs[0]
    assert done == msgspec.structs.replace(planned, outcome="imported")
    assert import_path(client, "jsonl", path, Options(dry_run=True)).jobs[0].outcome == "unchanged"


@pytest.mark.parametrize("keep", [True, False])
def test_where_it_came_from_is_kept(client: Client, tmp_path: Path, keep: bool) -> None:
    """The job names its tool, importer and sources; the files themselves are kept unless they are not wanted."""
    path = write(tmp_path / "a.jsonl")
    job = client.job(import_path(client, "jsonl", path, Options(keep_artifacts=keep)).jobs[0].id)
    assert (job.origin["kind"], job.origin["tool"], job.origin["importer"]) == ("import", "jsonl", "evalledger/1")
    (source,) = json.loads(client.artifacts.read_bytes(str(job.origin["sources"]), max_bytes=1_000))
    assert (source["path"], source["size"]) == ("a.jsonl", path.stat().st_size)
    assert client.artifacts.has(source["sha256"]) is keep


def test_a_dataset_is_named_by_what_it_is(client: Client, tmp_path: Path) -> None:
    """Without --dataset the tool, the file and the members name it, whatever characters the file's name has."""
    job = import_path(client, "jsonl", write(tmp_path / "-- my run (2)!.jsonl")).jobs[0]
    dataset = client.dataset(job.dataset)
    assert job.dataset == f"jsonl/my-run-2-@{dataset.members_digest[:12]}"
    assert (dataset.digests, dataset.runner) == ("by-name", "jsonl@unknown")
    tasks = [task for _, task in client.dataset_tasks(job.dataset)]
    assert tasks[0] == Task("alpha", digest_of_names("jsonl", "jsonl/my-run-2-", "alpha"))


def test_a_part_of_a_dataset_is_a_subset_job(client: Client, tmp_path: Path) -> None:
    """A later run of fewer tasks is a job on the same revision, in its order; of the same tasks, a whole one."""
    options = Options(dataset="d@1")
    whole = import_path(client, "jsonl", write(tmp_path / "a.jsonl"), options).jobs[0]
    part = import_path(client, "jsonl", write(tmp_path / "b.jsonl", ROWS[2:]), options).jobs[0]
    turned = import_path(client, "jsonl", write(tmp_path / "c.jsonl", ROWS[::-1]), options).jobs[0]
    assert (whole.members, part.members, turned.members) == (2, 1, 2)
    assert (client.job(part.id).subset, client.job(turned.id).subset) == (True, False)
    assert [task.task for task in client.result(turned.id).tasks] == ["alpha", "beta"]
    assert len(client.datasets()) == 1


def test_another_dataset_of_that_name_is_a_conflict(client: Client, tmp_path: Path) -> None:
    """Foreign tasks, content digests and another runner are named; nothing is claimed to be the same."""
    client.publish_runner(RunnerPublished("mine@1", "external"))
    client.publish_dataset("d@1", [Task("alpha", "a" * 64)], runner="mine@1")
    report = import_path(client, "jsonl", write(tmp_path / "a.jsonl"), Options(dataset="d@1"))
    (refused,) = report.refused
    assert refused.outcome == "conflict"
    for differs in ("pins the runner mine@1", "no task 'beta'", "'alpha' has another digest (content)"):
        assert differs in refused.why


def test_two_at_once_import_once(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes second finds the job and says unchanged."""
    path = write(tmp_path / "a.jsonl")
    record_new = Ledger.record_new

    def overtaken(ledger: Ledger, *args: Any, **kwargs: Any) -> int:
        monkeypatch.setattr(Ledger, "record_new", record_new)
        assert import_path(client, "jsonl", path).jobs[0].outcome == "imported"
        return record_new(ledger, *args, **kwargs)

    monkeypatch.setattr(Ledger, "record_new", overtaken)
    assert import_path(client, "jsonl", path).jobs[0].outcome == "unchanged"
    assert len(client.jobs().jobs) == 1


def test_a_race_for_the_dataset_is_run_again(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When another run publishes the same dataset meanwhile, this one uses it; for ever overtaken, it gives up."""
    record_new = Ledger.record_new
    other = write(tmp_path / "b.jsonl", [ROWS[0], ROWS[2]])

    def overtaken(ledger: Ledger, *args: Any, **kwargs: Any) -> int:
        monkeypatch.setattr(Ledger, "record_new", record_new)
        import_path(client, "jsonl", other, Options(dataset="d@1"))
        return record_new(ledger, *args, **kwargs)

    monkeypatch.setattr(Ledger, "record_new", overtaken)
    assert import_path(client, "jsonl", write(tmp_path / "a.jsonl"), Options(dataset="d@1")).jobs[0].members == 2
    assert len(client.datasets()) == 1

    def always(ledger: Ledger, *args: Any, **kwargs: Any) -> int:
        raise ConcurrentWrite("again")

    monkeypatch.setattr(Ledger, "record_new", always)
    assert import_path(client, "jsonl", tmp_path / "a.jsonl").refused[0].outcome == "conflict"


def test_a_file_that_changes_meanwhile_is_refused(client: Client, tmp_path: Path) -> None:
    """What was checked is what is recorded, in the log and in the artifacts."""
    path = write(tmp_path / "a.jsonl")
    for keep in (True, False):
        run = run_of(write(path))
        write(path, [ROWS[0] | {"reward": 0}, *ROWS[1:]])
        with pytest.raises(BadInput, match="changed while"):
            import_run(client, run, Options(keep_artifacts=keep))
        assert client.ledger.head().size == 1


def test_what_is_no_ordinary_file_is_refused(client: Client, tmp_path: Path) -> None:
    """Nothing there, an empty folder, and a link inside a folder are reported, not followed."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "links").mkdir()
    (tmp_path / "links/a.jsonl").symlink_to(write(tmp_path / "a.jsonl"))
    for name, says in (("absent", "nothing at"), ("empty", "no file"), ("links", "symbolic link")):
        report = import_path(client, "jsonl", tmp_path / name)
        assert report.jobs == []
        assert says in report.refused[0].why


def test_a_bad_reference_is_refused(client: Client, tmp_path: Path) -> None:
    """Dataset and runner must be NAME@VERSION; a job needs at least one attempt."""
    path = write(tmp_path / "a.jsonl")
    for options, says in (
        (Options(dataset="no version"), "NAME@VERSION"),
        (Options(runner="../x@1"), "NAME@VERSION"),
        (Options(attempts=0), "1 to 1,000 attempts"),
    ):
        assert says in import_path(client, "jsonl", path, options).refused[0].why


def test_a_tools_version_names_the_runner(client: Client, tmp_path: Path) -> None:
    """A version that no reference may hold is written so that it can be one; the job keeps it as it was."""
    run = run_of(write(tmp_path / "a.jsonl"), tool_version="1.2 (beta)", as_reported={"accuracy": 0.5}, flags=["x"])
    imported = import_run(client, run, Options())
    job = client.job(imported.id)
    assert (job.runner, job.origin["tool_version"]) == ("jsonl@1.2-beta-", "1.2 (beta)")
    assert (imported.as_reported, imported.flags) == ({"accuracy": 0.5}, ("x",))


def test_a_trials_id_is_the_uuid5_of_its_slot() -> None:
    """Written out by hand for speed, it stays the id that every other library computes."""
    for number, task in enumerate(NASTY_NAMES, 1):
        job_id = job_id_for("p", task)
        assert trial_id_for(job_id, task, number) == str(uuid5(UUID(job_id), f"{number}/{task}"))


def test_a_large_run_stays_within_batches(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials beyond one batch are recorded in the same transaction, and the messages of each batch are there."""
    monkeypatch.setattr(recording, "TRIALS_PER_BATCH", 3)
    rows = [{"task": f"t{n}", "attempt": 1, "error": {"type": "X", "message": f"no {n}"}} for n in range(10)]
    job = import_path(client, "jsonl", write(tmp_path / "a.jsonl", rows)).jobs[0]
    messages = {client.artifacts.read_bytes(row.message or "", max_bytes=10) for row in client.trials(job.id)}
    assert messages == {f"no {n}".encode() for n in range(10)}
    assert client.job(job.id).endings == {"failed": 10}
