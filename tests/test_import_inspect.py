"""Importing Inspect logs: the reward is one scorer's word, and what nobody scored is not zero."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from api.client import Client, connect
from api.importers.importing import Report, import_path
from api.importers.run import Options
from api.settings import Settings
from projections.trials import TrialRow, structured_result, why_no_reward
from tests.zip_bytes import Part, zip_of

Import = Callable[..., Report]
Sample = dict[str, Any]
WHEN = "2026-01-02T03:04:05+00:00"


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return connect(settings=Settings(home=tmp_path / ".el"))


@pytest.fixture
def take(client: Client, tmp_path: Path) -> Import:
    """Import a log given as a value, text or bytes, as `.json` or `.eval`; the report."""

    def run(log: dict[str, Any] | str | bytes, *, name: str = "a.json", **options: Any) -> Report:
        data = log if isinstance(log, bytes) else log.encode() if isinstance(log, str) else json.dumps(log).encode()
        if isinstance(log, dict) and name.endswith(".eval"):
            data = archive_of(log)
        path = tmp_path / name
        path.write_bytes(data)
        return import_path(client, "inspect", path, Options(**options))

    return run


def log_of(samples: Sequence[Sample], *, status: str = "success", **fields: Any) -> dict[str, Any]:
    """A log of these samples; `ids`, `limit`, `epochs`, `results` and fields of `eval` as given."""
    results = fields.pop("results", None)
    invalidated = fields.pop("invalidated", False)
    spec = {
        "run_id": "run1", "eval_id": "eval1", "task": "demo", "packages": {"inspect_ai": "0.3.285"},
        "dataset": {"name": "set", "sample_ids": fields.pop("ids", None)},
        "config": {"epochs": fields.pop("epochs", None), "limit": fields.pop("limit", None)},
        **fields,
    }  # fmt: skip
    header = {"version": 2, "status": status, "eval": spec, "plan": {}, "results": results, "invalidated": invalidated}
    return {**header, "samples": list(samples)}


def sample(id_: Any, epoch: int = 1, value: Any = "C", **fields: Any) -> Sample:
    scores = {"match": {"value": value, "explanation": "long"}}
    return {"id": id_, "epoch": epoch, "input": "q", "messages": [], "scores": scores, "started_at": WHEN, **fields}


def archive_of(log: dict[str, Any]) -> bytes:
    head = {key: value for key, value in log.items() if key != "samples"}
    members = {f"samples/{s['id']}_epoch_{s['epoch']}.json": s for s in log["samples"]}
    start = {key: log[key] for key in ("version", "eval", "plan")}
    return archive({"_journal/start.json": start, **members, "header.json": head})


def archive(members: Mapping[str, Any]) -> bytes:
    """An archive of values as JSON, or of bytes."""
    data = {name: value if isinstance(value, bytes) else json.dumps(value).encode() for name, value in members.items()}
    return zip_of(*(Part(name, content) for name, content in data.items()))


def trials(client: Client, report: Report) -> dict[tuple[str, int], TrialRow]:
    assert report.refused == []
    return {(found.task, found.attempt): found for found in client.trials(report.jobs[0].id)}


def refusal(client: Client, report: Report) -> str:
    assert report.jobs == []
    assert client.jobs().jobs == []
    assert client.datasets() == []
    return report.refused[0].why


@pytest.mark.parametrize("name", ["a.json", "a.eval"])
def test_an_epoch_is_an_attempt(client: Client, take: Import, name: str) -> None:
    """k is the log's `epochs`; members are `sample_ids`, also those that never ran; ids are text."""
    log = log_of([sample(1), sample(1, 2, "I"), sample("题/ b")], ids=[1, "题/ b", "never"], epochs=2)
    report = take(log, name=name)
    found = trials(client, report)
    assert {slot: row.reward for slot, row in found.items()} == {("1", 1): 1.0, ("1", 2): 0.0, ("题/ b", 1): 1.0}
    (job,) = report.jobs
    assert (job.attempts, job.members, job.flags) == (2, 3, ())
    assert job.dataset.startswith("inspect/set@")
    assert client.job(job.id).runner == "inspect@0.3.285"


@pytest.mark.parametrize("name", ["a.json", "a.eval"])
def test_the_same_log_again_writes_nothing_and_another_is_a_conflict(client: Client, take: Import, name: str) -> None:
    """An eval has an id of its own: other bytes under it are told, not adopted."""
    assert take(log_of([sample(1)]), name=name).jobs[0].outcome == "imported"
    assert take(log_of([sample(1)]), name=f"b-{name}").jobs[0].outcome == "unchanged"
    assert take(log_of([sample(1, value="I")]), name=name).refused[0].outcome == "conflict"
    assert take(log_of([sample(1)], eval_id="eval2"), name=name).jobs[0].outcome == "imported"


@pytest.mark.parametrize(
    ("value", "reward", "why"),
    [
        ('"C"', 1.0, None),
        ('"I"', 0.0, None),
        ('"P"', 0.5, None),
        ('"N"', 0.0, None),
        ("true", 1.0, None),
        ("false", 0.0, None),
        ("-0.25", -0.25, None),
        ("NaN", None, "unscored"),
        ("null", None, "null"),
        ("Infinity", None, "not-finite"),
        ("1e309", None, "not-finite"),
        ('"0.5"', None, "not-a-number"),
        ('"c"', None, "not-a-number"),
        ('"NaN"', None, "not-a-number"),
        ('{"a": 1}', None, "no-reward-key"),
        ("[1, 0]", None, "no-reward-key"),
    ],
)
def test_what_a_score_is_worth(client: Client, take: Import, value: str, reward: float | None, why: str | None) -> None:
    """Letters and truth values are numbers to Inspect; other text is none; NaN says that nobody scored."""
    text = json.dumps(log_of([sample(1, value="here")])).replace('"here"', value)
    report = take(text)
    row = trials(client, report)["1", 1]
    assert (row.reward, why_no_reward(row), row.status) == (reward, why, "succeeded")
    flags = {"not-finite": "reward-rejected", "not-a-number": "reward-rejected", "no-reward-key": "no-reward-key"}
    assert report.jobs[0].flags == ((flags[why],) if why in flags else ())


def test_values_with_keys_are_dimensions(client: Client, take: Import) -> None:
    """`<scorer>.<key>` of an object, `<scorer>.<place>` of a list; the unscored is left out, text is flagged."""
    value = {"clear": "P", "safe": True, "lost": float("nan"), "说": 2}
    report = take(
        log_of([sample(1, value=value), sample(2, value=[1, "C"]), sample(3, value={"kind": "poem", "n": 1})])
    )
    found = {task: structured_result(row).dimensions for (task, _), row in trials(client, report).items()}
    assert found["1"] == {"match.clear": 0.5, "match.safe": 1.0, "match.说": 2.0}
    assert found["2"] == {"match.0": 1.0, "match.1": 1.0}
    assert found["3"] == {"match.n": 1.0}
    assert report.jobs[0].flags == ("dimensions-rejected", "no-reward-key")


def test_several_scorers_need_a_name(client: Client, take: Import) -> None:
    """The one that is named gives the reward, the others dimensions; another name is another job of the same log."""
    log = log_of([sample(1) | {"scores": {"match": {"value": "I"}, "judge": {"value": 0.7}}}])
    assert "match, judge; name the reward's with `--scorer`" in refusal(client, take(log))
    assert "no scorer 'x'; it has match, judge" in refusal(client, take(log, scorer="x"))
    jobs = [take(log, scorer=name, dataset="set@1").jobs[0] for name in ("match", "judge", "match")]
    assert [job.outcome for job in jobs] == ["imported", "imported", "unchanged"]
    assert jobs[0].id == jobs[2].id
    rows = [client.trials(job.id)[0] for job in jobs[:2]]
    assert [(row.reward, structured_result(row).dimensions) for row in rows] == [
        (0.0, {"judge": 0.7}),
        (0.7, {"match": 0.0}),
    ]


def test_an_error_is_no_reward_but_a_score_beside_it_counts(client: Client, take: Import) -> None:
    """The error's class is read from `repr` or the traceback's last line; its text becomes an artifact."""
    errors = [
        ({"message": "RuntimeError('sandbox (1) lost')", "traceback": "T"}, "RuntimeError"),
        (
            {"message": "too many", "traceback": "Traceback:\n  x\nopenai.RateLimitError: too many\nwait"},
            "openai.RateLimitError",
        ),
        ({"message": "went wrong (1)"}, "SampleError"),
    ]
    bare = [sample(number, error=error) | {"scores": {}} for number, (error, _) in enumerate(errors)]
    report = take(log_of([*bare, sample("scored", error=errors[0][0])]))
    found = trials(client, report)
    for number, (_, error_type) in enumerate(errors):
        row = found[str(number), 1]
        assert (row.status, row.error_type, row.reward, why_no_reward(row)) == (
            "failed",
            error_type,
            None,
            "trial-error",
        )
    message = found["0", 1].message
    assert message is not None
    assert client.artifacts.read_bytes(message, max_bytes=100) == b"RuntimeError('sandbox (1) lost')\nT"
    assert (found["scored", 1].status, found["scored", 1].reward) == ("failed", 1.0)


def test_a_canceled_sample_is_canceled(client: Client, take: Import) -> None:
    """As with other tools, that exception is no failure."""
    row = trials(client, take(log_of([sample(1, error={"message": "CancelledError()"}) | {"scores": None}])))["1", 1]
    assert (row.status, row.reward, why_no_reward(row)) == ("canceled", None, "canceled")


def test_limits_retries_and_invalidation_are_flags(client: Client, take: Import) -> None:
    """None of them takes a score away."""
    told = {
        "limit": {"type": "message", "limit": 5},
        "error_retries": [{"message": "x"}],
        "invalidation": {"author": "a"},
    }
    report = take(log_of([sample(1, **told)]))
    assert report.jobs[0].flags == ("errors-retried", "limit-reached", "samples-invalidated")
    assert trials(client, report)["1", 1].reward == 1.0
    assert take(log_of([sample(1)], invalidated=True, eval_id="b")).jobs[0].flags == ("samples-invalidated",)


def test_a_sample_that_nobody_scored_is_not_reported(client: Client, take: Import) -> None:
    """No error, no score: no reward, and no zero."""
    row = trials(client, take(log_of([sample(1), sample(2) | {"scores": None}])))["2", 1]
    assert (row.status, row.reward, why_no_reward(row)) == ("succeeded", None, "not-reported")


def test_a_number_and_its_text_are_never_merged(client: Client, take: Import) -> None:
    """Both among the samples, or both among the ids, are refused; a number that the ids spell as text is one member."""
    assert 'both 1 and "1"' in refusal(client, take(log_of([sample(1), sample("1", 2)])))
    assert 'both 1 and "1"' in refusal(client, take(log_of([sample(1)], ids=[1, "1"])))
    assert take(log_of([sample(0)], ids=["0"])).jobs[0].members == 1


@pytest.mark.parametrize("id_", [1.5, 1.0, True, None, [1], "", "a\nb"])
def test_an_id_is_a_whole_number_or_text(client: Client, take: Import, id_: Any) -> None:
    """Anything else is refused, naming the sample."""
    assert "Sample 2 of the log" in refusal(client, take(log_of([sample(0), sample(id_)])))


@pytest.mark.parametrize("epoch", [0, -1, "1", None, 1.5])
def test_an_epoch_counts_from_1(client: Client, take: Import, epoch: Any) -> None:
    """Anything else is refused, naming the sample."""
    assert "Sample 1 of the log" in refusal(client, take(log_of([sample(0, epoch)])))


def test_copies_count_once_and_contradictions_are_refused(client: Client, take: Import) -> None:
    """What was said, not only the score, makes the content."""
    other = sample(1) | {"messages": [{"role": "user"}]}
    assert "Sample 1 of the log and Sample 2 of the log" in refusal(client, take(log_of([sample(1), other])))
    members = {"header.json": log_of([]), "samples/1_epoch_1.json": sample(1), "samples/x.json": other}
    assert "different things" in refusal(client, take(archive(members), name="a.eval"))
    report = take(log_of([sample(1), sample(1)]))
    assert (len(trials(client, report)), report.jobs[0].flags) == (1, ("duplicate-rows-dropped",))


def test_more_epochs_than_asked_for_are_extra(client: Client, take: Import) -> None:
    """They are kept, and their member is not complete."""
    report = take(log_of([sample(1), sample(1, 2)], epochs=1))
    assert report.jobs[0].flags == ("extra-trials",)
    assert client.result(report.jobs[0].id).score_counts.complete_members == 0


def test_the_limit_says_which_of_a_whole_dataset_ran(client: Client, take: Import) -> None:
    """A number or a range; ids that are cut to it already stay; a sample beside them is a member, and flagged."""
    ids = ["a", "b", "c", "d"]
    for number, (limit, given, members) in enumerate(
        [(2, ids, 2), ([1, 3], ids, 3), ([1, 3], ["b", "c"], 3), (9, ids, 4), (None, ids, 4), (0, ids, 1)]
    ):
        log = log_of([sample("a")], ids=given, limit=limit, eval_id=str(number))
        job = take(log, dataset=f"s@{number}").jobs[0]
        assert (job.members, "ids-not-in-dataset" in job.flags) == (members, members in (1, 3))


@pytest.mark.parametrize("status", ["started", "cancelled", "error"])
def test_an_eval_that_did_not_end_gives_what_is_there(client: Client, take: Import, status: str) -> None:
    """It is flagged; its other slots stay empty. Before its end, an archive has no header but that of its start."""
    report = take(log_of([sample(1)], ids=[1, 2], status=status))
    assert (report.jobs[0].flags, report.jobs[0].members) == (("run-unfinished",), 2)
    start = {"version": 2, "eval": log_of([], ids=[1, 2], eval_id="b")["eval"], "plan": {}}
    report = take(archive({"_journal/start.json": start, "samples/1_epoch_1.json": sample(1)}), name="a.eval")
    assert (report.jobs[0].flags, len(trials(client, report))) == (("run-unfinished",), 1)


def test_a_log_without_samples_is_refused(client: Client, take: Import) -> None:
    """Its printed numbers cannot be checked; an eval that died at once has empty slots all the same."""
    assert "holds no samples" in refusal(client, take(log_of([], ids=[1])))
    assert "names no task" in refusal(client, take(log_of([], status="error")))
    assert take(log_of([], ids=[1], status="error")).jobs[0].members == 1


def test_times_are_instants_or_none(client: Client, take: Import) -> None:
    """A time without an offset is flagged and not guessed; old logs have none. How long it took is the tool's own."""
    told = take(log_of([sample(1, total_time=2.5), sample(2, completed_at="2026-01-02T05:04:09+02:00")]))
    assert [row.duration_s for row in trials(client, told).values()] == [2.5, 4.0]
    naive = take(log_of([sample(1, started_at="2026-01-02T03:04:05")], eval_id="a"))
    assert naive.jobs[0].flags == ("time-zone-unknown",)
    none = take(log_of([sample(1, started_at=None)], eval_id="b"), dataset="s@2")
    assert none.jobs[0].flags == ("times-missing",)


def metric(name: str, value: Any, *, key: str | None = None, reducer: str | None = "mean") -> dict[str, Any]:
    return {
        "name": key or "match",
        "scorer": "match",
        "reducer": reducer,
        "metrics": {name: {"name": name, "value": value}},
    }


@pytest.mark.parametrize(
    ("scores", "total", "differ"),
    [
        ([metric("accuracy", 0.5)], 4, False),
        ([metric("accuracy", 0.50001)], 4, True),
        ([metric("accuracy", float("nan"))], 4, True),
        ([metric("mean", 0.5, reducer=None)], 4, False),
        ([metric("accuracy", 0.5)], 5, True),
        ([metric("stderr", 0.9)], 4, False),
        ([metric("mean", 0.9, key="clear")], 4, False),
        ([metric("accuracy", 0.5), metric("accuracy", 1.0, reducer="pass_at_2")], 4, False),
        ([metric("accuracy", 0.5), metric("accuracy", 0.9, reducer="pass_at_2")], 4, True),
        ([metric("accuracy", 0.9, reducer="max")], 4, False),
    ],
)
def test_printed_numbers_are_compared(take: Import, scores: list[Any], total: int, differ: bool) -> None:
    """The mean, pass@k and the count; other metrics have no number of ours beside them."""
    samples = [sample(1), sample(1, 2, "I"), sample(2), sample(2, 2, "I")]
    log = log_of(
        samples, ids=[1, 2], epochs=2, results={"total_samples": total, "completed_samples": 4, "scores": scores}
    )
    assert ("as-reported-differs" in take(log).jobs[0].flags) == differ


def test_every_printed_number_is_kept(take: Import) -> None:
    """Under its scorer, key, metric, and its reducer where there are several; what is no number as it was written."""
    scores = [
        metric("accuracy", 1.0), metric("accuracy", 0.75, reducer="pass_at_2"),
        metric("std", float("nan"), key="clear"),
    ]  # fmt: skip
    (job,) = take(log_of([sample(1)], results={"total_samples": 1, "scores": scores})).jobs
    assert job.as_reported == {
        "tool": "inspect", "version": "0.3.285", "status": "success", "scorer": "match", "total_samples": 1,
        "match.accuracy/mean": 1.0, "match.accuracy/pass_at_2": 0.75, "match.clear.std": "NaN",
    }  # fmt: skip


def test_a_samples_input_is_part_of_its_digest(client: Client, take: Import) -> None:
    """Text, or who says what in messages, whose ids are other in every run; a model's answer is no part."""
    talk = [{"id": "m1", "role": "user", "content": [{"type": "text", "text": "q"}]}]
    assert take(log_of([sample(1, input=talk)], eval_id="a"), dataset="s@1").refused == []
    again = [{"id": "m2", "role": "user", "content": [{"type": "text", "text": "q"}]}]
    assert take(log_of([sample(1, input=again)], eval_id="b"), dataset="s@1").refused == []
    other = [{"id": "m3", "role": "user", "content": "other"}]
    assert take(log_of([sample(1, input=other)], eval_id="c"), dataset="s@1").refused[0].outcome == "conflict"


def test_a_cut_log_gives_what_is_whole(client: Client, take: Import) -> None:
    """Samples before the cut are imported and flagged, nothing with --strict; a cut header is refused."""
    text = json.dumps(log_of([sample(1), sample(2)], ids=[1, 2]))
    at = text.index('{"id": 2')
    assert "is cut" in refusal(client, take(text[:-1], strict=True))
    assert "is cut" in refusal(client, take(text[: text.index('"plan"') - 5]))
    for number, (cut, whole) in enumerate([(at, 1), (at + 30, 1), (len(text) - 1, 2)]):
        report = take(text[:cut].replace("eval1", str(number)))
        assert len(trials(client, report)) == whole
        assert report.jobs[0].flags == ("source-incomplete",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON object"),
        ("[]", "no JSON object"),
        ("{}", "`eval`"),
        ('{"eval": 1}', "no log of Inspect"),
        ('{"eval": {"config": {"epochs": 0}}}', "epochs"),
        ('{"eval": {}, "status": "error", "samples": [1]}', "no object"),
        ('{"eval": {}, "samples": [{"id": 1}]}', "`epoch`"),
        ('{"eval": {}, "eval": {}}', '"eval" twice'),
        ('{"eval": {"a": {"b": 1, "b": 2}}}', '"b" twice'),
        ('{"eval": {}, "samples": [{"id": 1, "epoch": 1, "messages": [{"a": 1, "a": 1}]}]}', '"a" twice'),
        ('{"eval": {}, "samples": [{"id": 1, "epoch": 1, "id": 1}]}', '"id" twice'),
        ('{"eval": {}, "samples": [{"id": "\\ud800", "epoch": 1}]}', "surrogate"),
        ('{"eval": {}, "samples": [{"id": 1, "epoch": 1, "scores": {"a": 1}}]}', "scores"),
        (b'{"eval": {}, "samples": [{"id": "\xff", "epoch": 1}]}', "no JSON"),
        ('{"eval": ' + "[" * 100_000, "nested"),
    ],
)
def test_a_hostile_log_is_refused(client: Client, take: Import, text: str | bytes, says: str) -> None:
    """Never a traceback: one sentence, and nothing is written."""
    assert says in refusal(client, take(text))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no zip archive"),
        (archive_of(log_of([sample(1)]))[:-9], "no zip archive"),
        (archive({"samples/1_epoch_1.json": sample(1)}), "holds neither header.json"),
        (archive({"header.json": log_of([]), "samples/../../1.json": sample(1)}), "leaves its folder"),
        (archive({"header.json": log_of([]), "samples/1.json": b'{"id": 1, "epoch"'}), "cut before its end"),
        (archive({"header.json": log_of([]), "samples/1.json": b"[]"}), "'samples/1.json'"),
        (archive({"header.json": log_of([]), "samples/1.json": b'{"id": 1, "id": 1}'}), '"id" twice'),
        (archive({"header.json": b"{", "samples/1.json": sample(1)}), "cut before its end"),
        (zip_of(Part("header.json", b"{}"), Part("header.json", b"{}")), "stands there twice"),
        (zip_of(Part("header.json", b"{}", size=1)), "declares"),
    ],
)
def test_a_hostile_archive_is_refused(client: Client, take: Import, data: bytes, says: str) -> None:
    """Never a traceback: one sentence, and nothing is written."""
    assert says in refusal(client, take(data, name="a.eval"))


def test_caps_hold_for_both_forms(client: Client, take: Import) -> None:
    """Of a file, of what an archive unpacks to, and of its members."""
    log = log_of([sample(1)])
    assert "larger than 10 bytes" in refusal(client, take(log, file_bytes_max=10))
    assert "--max-archive-bytes" in refusal(client, take(log, name="a.eval", archive_bytes_max=10))
    assert "--max-archive-members" in refusal(client, take(log, name="a.eval", archive_members_max=2))


def test_a_folder_gives_its_logs_and_nothing_else(client: Client, take: Import, tmp_path: Path) -> None:
    """Other JSON beside them is left out; of several logs a bad one is reported and the rest go on."""
    folder = tmp_path / "logs"
    folder.mkdir()
    take(log_of([sample(1)], eval_id="a"), name="logs/a.json")
    take(log_of([sample(1)], eval_id="b"), name="logs/sub.eval")
    (folder / "eval-set.json").write_text("{}")
    (folder / "bad.eval").write_bytes(b"PK")
    report = import_path(client, "inspect", folder)
    assert [job.outcome for job in report.jobs] == ["unchanged", "unchanged"]
    assert [Path(refused.path).name for refused in report.refused] == ["bad.eval"]
    assert {job.outcome for job in import_path(client, "auto", folder).jobs} == {"unchanged"}


def test_long_conversations_cost_no_memory(client: Client, take: Import) -> None:
    """100 MB of messages in an archive of a few kB, and the samples are read all the same."""
    talk = [{"role": "assistant", "content": "x" * 1_000_000}] * 20
    members = {f"samples/{n}_epoch_1.json": sample(n, messages=talk) for n in range(5)}
    data = archive({"header.json": log_of([]), **members})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(trials(client, take(data, name="a.eval"))) == 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # kB
