"""Sentences for tests of rules, facts of every kind, and whole legal histories made by asking the rules.

given(dispatched, started).when(trial.record_reward, reward=1.0).then(RewardRecorded(1.0))
given().when(trial.start).refused(NotAllowed)
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from hashlib import sha256
from itertools import count
from random import Random
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
import sqlalchemy as sa
from hypothesis import strategies as st
from sqlalchemy.engine import Engine

from ledger import codec
from ledger.codec import TAGS, Row
from ledger.database import entries as entries_table
from ledger.database import log_heads, reading
from ledger.digests import cohort_digest, members_digest
from ledger.errors import Conflict, Refused
from ledger.facts import trial as t
from ledger.facts.access import ProjectFact
from ledger.facts.catalogue import DatasetFact, Parameter, ProfilePublished, RunnerPublished, Step, Task, dataset_stream
from ledger.facts.entry import AnyFact, Entry, Recorded
from ledger.facts.fact import Fact
from ledger.facts.job import JobFact, JobSubmitted, Origin, job_stream
from ledger.facts.leaderboard import LeaderboardFact, SnapshotAdded, leaderboard_stream, snapshot_id_for
from ledger.facts.trial import Slot, TrialFact, trial_id_for, trial_stream
from ledger.rules import access, catalogue, job, leaderboard, trial
from projections.following import ReadModel
from projections.metrics import Metrics, measure_trials
from projections.snapshots import fold_numbers
from projections.tally import Trial

NOW = datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
JOB = "6f1c2e5a-1f0e-5a53-9f6e-0d8f2a4b7c11"
_projects = count(1)

SHA_A, SHA_B, SHA_C = "a" * 64, "b" * 64, "c" * 64

NASTY_FLOATS = (0.0, 1.0, -0.0, 0.5, 5e-324, -5e-324, 1e308, -1e308, 1.7976931348623157e308, 0.1, 1 / 3, 2.0, -1.0)
NASTY_NAMES = (
    "add-1", "A", "a", "a/b", "../../etc/passwd", "//x", "名字 与 空格", "e\u0301", "é", "\u202eabc", "\u2028", "🙂",
    "'; DROP TABLE trials; --", '"quoted"\\back', "null", "NaN", "%s %(p)s", ":p", " both ends ", "trial/x/1/y",
    "-0.0", "1", "n" * 512,
)  # fmt: skip


# --- sentences -------------------------------------------------------------------------------------------------------

_FAMILIES: tuple[tuple[Any, Callable[[Any, Any], Any]], ...] = (
    (ProjectFact, access.evolve),
    (DatasetFact, catalogue.evolve_dataset),
    (RunnerPublished, catalogue.evolve_runner),
    (ProfilePublished, catalogue.evolve_profile),
    (JobFact, job.evolve),
    (TrialFact, trial.evolve),
    (LeaderboardFact, leaderboard.evolve),
)
EVOLVE: dict[type, Callable[[Any, Any], Any]] = {
    kind: evolve for family, evolve in _FAMILIES for kind in (get_args(family) or (family,))
}


def fold(facts: Sequence[Any]) -> Any:
    """The state that facts of one stream lead to; None without facts."""
    return reduce(lambda state, fact: EVOLVE[type(fact)](state, fact), facts, None)


class When:
    """What a rule answered."""

    def __init__(self, rule: Callable[..., Any], state: Any, arguments: dict[str, Any]) -> None:
        self.facts: list[Any] = []
        self.error: Refused | None = None
        try:
            self.facts = rule(state, **arguments)
        except Refused as error:
            self.error = error

    def then(self, *facts: Any) -> None:
        """Exactly these facts are to be recorded; none means there is nothing new."""
        if self.error:
            raise self.error
        assert self.facts == list(facts)
        # To Python 1, 1.0 and True are equal, and so are 0.0 and -0.0: what is written must be the same too.
        assert msgspec.json.encode(self.facts) == msgspec.json.encode(list(facts))

    def refused(self, kind: type[Refused], saying: str = "", differs: Sequence[str] | None = None) -> None:
        """Refused with exactly this error, a sentence for a person, and what differs."""
        assert type(self.error) is kind, f"got {self.error!r} and {self.facts!r}"
        sentence = str(self.error)
        assert saying in sentence
        assert sentence.endswith((".", ")"))
        if differs is not None:
            assert isinstance(self.error, Conflict)
            assert list(self.error.differs) == list(differs)


class Given:
    """A stream with these facts in it."""

    def __init__(self, facts: Sequence[Any]) -> None:
        self.state = fold(facts)

    def when(self, rule: Callable[..., Any], **arguments: Any) -> When:
        """A rule is asked."""
        return When(rule, self.state, arguments)


def given(*facts: Any) -> Given:
    """Begin a sentence with what has happened already."""
    return Given(facts)


# --- builders --------------------------------------------------------------------------------------------------------


def dispatched(task: str = "add-1", attempt: int = 1, *, job_id: str = JOB, worker: str | None = None) -> Any:
    return t.TrialDispatched(trial_id_for(job_id, task, attempt), job_id, task, digest_of(task), attempt, worker)


def manifest(tasks: Sequence[Task] = (), *, job_id: str = JOB, **fields: Any) -> JobSubmitted:
    tasks = tasks or (Task("add-1", SHA_A), Task("add-2", SHA_B))
    named: dict[str, Any] = {"dataset": "arith@1", "runner": "shell@1", "attempts": 2} | fields
    return JobSubmitted(
        job_id=job_id,
        member_count=len(tasks),
        members_digest=members_digest((x.name, x.digest) for x in tasks),
        **named,
    )


def fresh_project() -> str:
    """A project that no test has used."""
    return f"p{next(_projects)}"


def digest_of(name: str) -> str:
    return sha256(name.encode()).hexdigest()


def entry(fact: AnyFact, stream: str, version: int = 1, *, at: datetime = NOW, actor: str = "local") -> Entry:
    return Entry(stream, version, at, actor, fact)


def rows_of(*entries: Entry) -> list[Row]:
    return codec.encode(entries)


# --- facts of every kind ---------------------------------------------------------------------------------------------

texts = st.sampled_from(NASTY_NAMES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
finite = st.sampled_from(NASTY_FLOATS) | st.floats(allow_nan=False, allow_infinity=False)
instants = st.datetimes(timezones=st.just(UTC))


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation, so that a kind of fact that comes later is covered without a word here."""
    arguments = get_args(kind)
    plain = {
        str: texts, int: st.integers(-(2**63), 2**63 - 1), float: finite, bool: st.booleans(), datetime: instants,
        type(None): st.none(),
    }  # fmt: skip
    if kind in plain:
        return plain[kind]
    if get_origin(kind) is Literal:
        return st.sampled_from(arguments)
    if get_origin(kind) in (Union, types.UnionType):
        return st.one_of(*map(of_type, arguments))
    if get_origin(kind) is tuple:
        return st.lists(of_type(arguments[0]), max_size=3).map(tuple)
    if get_origin(kind) is dict:
        return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), max_size=3)
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: of_type(hints[name]) for name in kind.__struct_fields__})


def facts_of_every_kind() -> st.SearchStrategy[Fact]:
    """Any fact that can be written, legal in its place or not."""
    return st.one_of(*(of_type(kind) for kind in TAGS))


# --- histories -------------------------------------------------------------------------------------------------------


class World:
    """A project in which things happen at random, each by asking a rule; what is refused does not happen."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = NOW
        self.entries: list[Entry] = []
        self.states: dict[str, Any] = {}
        self.versions: Counter[str] = Counter()
        self.jobs: dict[str, JobSubmitted] = {}
        self.members: dict[str, list[Task]] = {}
        self.beyond: list[Slot] = []

    def ask(self, stream: str, rule: Callable[..., Sequence[Any]], **arguments: Any) -> list[Any]:
        """Record what a rule returns on a stream; [] when it refuses."""
        try:
            facts = list(rule(self.states.get(stream), **arguments))
        except Refused:
            return []
        for fact in facts:
            self.now += timedelta(microseconds=self.random.choice([0, 1, 999_999]))
            self.versions[stream] += 1
            self.entries.append(
                Entry(stream, self.versions[stream], self.now, self.random.choice(["local", "w/1"]), fact)
            )
            self.states[stream] = EVOLVE[type(fact)](self.states.get(stream), fact)
        return facts

    def submit(self) -> None:
        """A dataset, runner and profile of its own, and a job on it: whole or a subset, local or imported."""
        random, number = self.random, len(self.jobs)
        names = random.sample(NASTY_NAMES, random.randint(1, 6))
        tasks = [Task(name, digest_of(name)) for name in names]
        ref, runner_ref = f"team/eval@{number}", f"shell@{number}"
        step = Step(("sh", "-c", "true"))
        runner = RunnerPublished(
            runner_ref, "command", (Parameter("model", True), Parameter("t", False, 0.5)), step, step
        )
        self.ask(f"runner/{runner_ref}", catalogue.publish_runner, runner=runner)
        seal = members_digest((task.name, task.digest) for task in tasks)
        self.ask(
            dataset_stream(ref), catalogue.publish_dataset, ref=ref, tasks=tasks, runner=runner_ref, members_digest=seal
        )
        profile = ProfilePublished(f"gpt@{number}", {"model": "名/x", "n": 1, "f": 1e308}, {"KEY": "hmac:1"})
        self.ask(f"profile/{profile.ref}", catalogue.publish_profile, profile=profile)
        subset = random.random() < 0.4
        chosen = sorted(random.sample(tasks, random.randint(1, len(tasks))), key=tasks.index) if subset else tasks
        kind: Any = random.choice(["local", "local", "api", "import"])
        effective = job.effective_parameters(runner, profile)
        job_id = str(UUID(int=random.getrandbits(128), version=4))
        asked = manifest(
            chosen, job_id=job_id, dataset=ref, runner=runner_ref, attempts=random.randint(1, 3), subset=subset,
            profile=profile.ref, parameters=effective.parameters, secrets=effective.secrets, ignored=effective.ignored,
            request_id=f"r{number}", tags={"标签": "é"}, agent_run="run-1",
            origin=Origin(kind, as_reported={"score": random.choice(NASTY_FLOATS)}),
        )  # fmt: skip
        self.ask(job_stream(job_id), job.submit_job, manifest=asked, selected=chosen if subset else ())
        self.jobs[job_id], self.members[job_id] = asked, chosen

    def slot(self) -> Slot:
        """Any slot that may be dispatched; of an imported job, also beyond k."""
        random = self.random
        if self.beyond and random.random() < 0.3:
            return random.choice(self.beyond)
        job_id = random.choice(list(self.jobs))
        most = self.jobs[job_id].attempts + (self.jobs[job_id].origin.kind == "import")
        return Slot(job_id, random.randint(1, most), random.choice(self.members[job_id]).name)

    def job_event(self) -> None:
        """A retry beyond k, or an end of some kind."""
        random, job_id = self.random, self.random.choice(list(self.jobs))
        stream = job_stream(job_id)
        match random.choice(["retry", "retry", "finish", "fail", "cancel"]):
            case "retry":
                task = random.choice(self.members[job_id])
                made = [int(s.split("/")[2]) for s in self.states if s.startswith(f"trial/{job_id}/")]
                lowest = max(made, default=0) + 1
                for fact in self.ask(stream, job.request_retry, task=task, attempt_min=lowest, reason="沙箱 lost"):
                    self.beyond.append(Slot(job_id, fact.attempt, task.name))
            case "finish":
                self.ask(stream, job.finish_job, failed_trials=random.randint(0, 2))
            case "fail" if random.random() < 0.2:
                self.ask(stream, job.fail_job, error_type="SandboxGone")
            case "cancel" if random.random() < 0.5:
                self.ask(stream, job.cancel_job, reason=random.choice(["", "too dear"]))

    def board_event(self) -> None:
        """A job's result is frozen on its leaderboard, or taken back from there."""
        random, job_id = self.random, self.random.choice(list(self.jobs))
        ended, asked = self.states[job_stream(job_id)].ended, self.jobs[job_id]
        tasks = [(task.name, task.digest) for task in self.members[job_id]]
        cohort = cohort_digest(asked.dataset, asked.runner, asked.attempts, tasks)
        stream = leaderboard_stream(cohort)
        if random.random() < 0.3:
            reason = random.choice(["重复", "wrong profile"])
            snapshot_id = snapshot_id_for(job_id)
            self.ask(stream, leaderboard.withdraw_snapshot, snapshot_id=snapshot_id, reason=reason)
        elif ended:
            numbers = fold_numbers((Recorded(at, entry) for at, entry in enumerate(self.entries, 1)), job_id)
            assert numbers
            snapshot = SnapshotAdded(
                snapshot_id_for(job_id), job_id, cohort, len(self.entries), ended, SHA_A, asked.dataset, asked.runner,
                asked.attempts, numbers, asked.profile, random.choice([None, "名/x"]),
            )  # fmt: skip
            self.ask(stream, leaderboard.add_snapshot, snapshot=snapshot)

    def trial_event(self) -> None:
        """Anything a worker, verifier or person may report on a trial, in any order."""
        random, slot = self.random, self.slot()
        stream = trial_stream(slot.job_id, slot.task, slot.attempt)
        number: Callable[[], float] = lambda: random.choice(NASTY_FLOATS)  # noqa: E731
        told = random.choice([None, NOW + timedelta(microseconds=random.randint(-(10**9), 10**9))])
        sha = random.choice([SHA_A, SHA_B, SHA_C])
        worker = random.choice([None, "w/1", "w/2"])
        name = random.choice(NASTY_NAMES)
        dispatch = (
            trial.dispatch,
            {"dispatched": dispatched(slot.task, slot.attempt, job_id=slot.job_id, worker=worker)},
        )
        choices: list[tuple[Any, dict[str, Any]]] = [
            (trial.start, {"started_at": told}),
            (trial.release, {"reason": "worker lost"}),
            (trial.record_reward, {"reward": number(), "source": random.choice([None, "reward.json"])}),
            (trial.reject_reward, {"rejected": t.RewardRejected(random.choice(["null", "not-finite"]), sha)}),
            (trial.revise_reward, {"new": number(), "verifier": "v@2", "reason": "重新"}),
            (trial.record_structured_result, {"result": random.choice([
                t.StructuredResultRecorded(number(), {name: number()}, sha),
                t.StructuredResultRejected("not-json", sha),
            ])}),
            (trial.keep_artifact, {"artifact": random.choice([
                t.ArtifactPersisted(name, sha, 2**40, "stdout"), t.ArtifactFailed(name, "too-large"),
            ])}),
            (trial.redact_artifact, {"sha256": sha, "reason": "personal data"}),
            (trial.lapse, {"token": random.choice([1, 3]), "started": random.choice([True, False])}),
            (trial.keep_late_reward, {"token": random.choice([1, 3]), "raw": sha}),
            (trial.end, {"ended": random.choice([
                t.TrialSucceeded(0, number(), told), t.TrialSucceeded(), t.TrialCanceled("", told),
                t.TrialFailed("Timeout", random.choice(["setup", "agent", "verifier"]), -9, sha, 5e-324, told),
            ])}),
        ]  # fmt: skip
        rule, arguments = random.choice([dispatch] * (1 if self.versions[stream] else 9) + choices)
        self.ask(stream, rule, **arguments)


@st.composite
def histories(draw: st.DrawFn, *, most: int = 120) -> list[Entry]:
    """A legal log of several jobs. Fewer events with the same seed are the beginning of the same log."""
    count, seed = draw(st.integers(0, most)), draw(st.integers(0, 2**32))
    return history(seed, count)


def history(seed: int, count: int) -> list[Entry]:
    """The log in which `count` things were tried."""
    world = World(seed)
    world.ask("project", access.create_project, name="default")
    world.submit()
    for _ in range(count):
        chance = world.random.random()
        if chance < 0.03 and len(world.jobs) < 4:
            world.submit()
        elif chance < 0.10:
            world.job_event()
        elif chance < 0.15:
            world.board_event()
        else:
            world.trial_event()
    return world.entries


def measured(entries: Sequence[Entry]) -> dict[str, Metrics]:
    """Each job's numbers straight from a history: no read model, no database."""
    submitted = {e.fact.job_id: e.fact for e in entries if isinstance(e.fact, JobSubmitted)}
    states: dict[Slot, Any] = {}
    for e in entries:
        if e.stream.startswith("trial/"):
            slot = t.slot_of(e.stream)
            states[slot] = trial.evolve(states.get(slot), e.fact)  # type: ignore[arg-type]
    answer = {}
    for job_id, asked in submitted.items():
        members: dict[str, list[Trial]] = {}
        for slot, state in states.items():
            if slot.job_id == job_id and state.dispatched:
                one = Trial(state.reward, state.ended is not None, slot.attempt > asked.attempts)
                members.setdefault(slot.task, []).append(one)
        answer[job_id] = measure_trials(asked.attempts, asked.member_count, members)
    return answer


# --- what a database holds -------------------------------------------------------------------------------------------


def dump(engine: Engine, project: str, models: Sequence[ReadModel], *, without: Sequence[str] = ()) -> dict[str, str]:
    """Every row of every table of the read models, byte for byte, by table."""
    found = {}
    with reading(engine) as connection:
        for model in models:
            for table in model.tables:
                columns = [c for c in table.c if c.name not in {"project_id", *without}]
                query = sa.select(*columns).where(table.c.project_id == project).order_by(*table.primary_key)
                found[table.name] = "\n".join(repr(tuple(row)) for row in connection.execute(query))
    return found


def naive_root(bodies: Sequence[bytes]) -> bytes:
    """MTH of RFC 6962, as its text says it."""
    if len(bodies) <= 1:
        return sha256(b"".join(b"\0" + body for body in bodies)).digest()
    split = 1 << (len(bodies) - 1).bit_length() - 1
    return sha256(b"\1" + naive_root(bodies[:split]) + naive_root(bodies[split:])).digest()


def faults_of_log(engine: Engine, project: str) -> list[str]:
    """What is wrong with a stored log: gaps, duplicates, a head or a root that does not fit. Trusts nothing of ours."""
    c = entries_table.c
    with reading(engine) as connection:
        query = sa.select(c.position, c.stream_id, c.stream_version, c.body).where(c.project_id == project)
        rows = connection.execute(query.order_by(c.position)).all()
        head = connection.execute(sa.select(log_heads).where(log_heads.c.project_id == project)).first()
    size, root = (head.size, head.root) if head else (0, naive_root([]))
    faults = []
    if [row[0] for row in rows] != list(range(1, len(rows) + 1)):
        faults.append("positions are not 1, 2, 3, ...")
    if len({(row[1], row[2]) for row in rows}) < len(rows):
        faults.append("a stream has a version twice")
    for stream, versions in _versions(rows).items():
        if versions != list(range(1, len(versions) + 1)):
            faults.append(f"{stream} has versions {versions}")
            break
    if size != len(rows):
        faults.append(f"the head says {size}, there are {len(rows)}")
    if root != naive_root([row[3] for row in rows]):
        faults.append("the root does not fit")
    return faults


def _versions(rows: Sequence[Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for _, stream, version, _ in rows:
        found.setdefault(stream, []).append(version)
    return found


def tables_without_the_unique_index(engine: Engine) -> None:
    """Sabotage: the log's table without the constraint that a stream has each version once."""
    bare = entries_table.to_metadata(sa.MetaData())
    bare.constraints = {c for c in bare.constraints if not isinstance(c, sa.UniqueConstraint)}
    entries_table.drop(engine)
    bare.create(engine)
