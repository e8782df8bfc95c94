"""The Ledger, the one way in: read a stream, ask the rule, record what it returns.

Single writes go through the eventsourcing library's `Application`; batches call the recorder directly, because the
library's checks per event cost more than everything else together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any, NamedTuple

from eventsourcing.application import Application
from eventsourcing.persistence import ApplicationRecorder, InfrastructureFactory, IntegrityError, Mapper, StoredEvent
from eventsourcing.popo import POPOFactory
from eventsourcing.utils import Environment, EnvType
from sqlalchemy.engine import Connection, Engine

from ledger import codec
from ledger.appending import Head
from ledger.codec import Row
from ledger.errors import BadInput, ConcurrentWrite, Refused, StoreError
from ledger.facts.entry import AnyFact, Entry, Recorded
from ledger.grouping import GroupCommit
from ledger.recorder import Also, ProjectRecorder
from ledger.rules import access, catalogue, job, leaderboard, trial

RETRIES_MAX = 50
READ_BATCH = 1_000
ACTOR_CHARS_MAX = 500  # an index holds it, and PostgreSQL has no room for much more there

# A rule that is ready to be asked: everything given but the state.
Rule = Callable[[Any], Sequence[AnyFact]]

_EVOLVE: dict[str, Callable[[Any, Any], Any]] = {
    "project": access.evolve,
    "dataset": catalogue.evolve_dataset,
    "runner": catalogue.evolve_runner,
    "profile": catalogue.evolve_profile,
    "job": job.evolve,
    "trial": trial.evolve,
    "leaderboard": leaderboard.evolve,
}


class Written(NamedTuple):
    """What a write came to: the last position of its stream, and the facts that were new (none for a repeat)."""

    position: int
    facts: tuple[AnyFact, ...]


class Asked(NamedTuple):
    """One write as a group commit takes it: the rules to ask on a stream, in whose name, under which request key."""

    stream: str
    rules: Sequence[Rule]
    actor: str
    key: str | None = None
    also: Also | None = None


Group = GroupCommit[Asked, Written]


class EntryMapper(Mapper[str]):
    """Our codec in the library's place for it: the stored topic is the fact's tag, the state the entry's bytes."""

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """An entry as the library stores it."""
        (row,) = codec.encode([domain_event])
        return StoredEvent(row.stream, row.version, row.tag, row.body)

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """The entry in a stored event. Its position is known only to notifications; elsewhere it reads as 0."""
        return codec.decode(getattr(stored_event, "id", 0), stored_event.state).entry


class _Factory(POPOFactory):
    """Hands the library our recorder; there is nothing else to construct."""

    recorder: ProjectRecorder

    def application_recorder(self) -> ApplicationRecorder:
        return self.recorder


class ProjectLog(Application[str]):
    """One project's log as an application of the eventsourcing library."""

    def __init__(self, recorder: ProjectRecorder, env: EnvType | None = None) -> None:
        self._project_recorder = recorder
        # The library keeps a follower's position under the application's name: each project has its own.
        self.name = recorder.project_id
        super().__init__(env)

    def construct_factory(self, env: Environment) -> InfrastructureFactory[Any]:
        """The factory that knows our recorder."""
        factory = _Factory(env)
        factory.recorder = self._project_recorder
        return factory

    def construct_mapper(self) -> Mapper[str]:
        """Our codec."""
        return EntryMapper(transcoder=self.construct_transcoder())


def utc_now() -> datetime:
    """The time an entry is recorded at, unless a test passes its own clock."""
    return datetime.now(UTC)


class Ledger:
    """One project's ledger. It owns the clock and the actor; rules get neither.

    With a `group`, shared by all ledgers of the project in a process, single writes are committed together.
    """

    def __init__(
        self,
        engine: Engine,
        project_id: str,
        *,
        actor: str = "local",
        clock: Callable[[], datetime] = utc_now,
        group: Group | None = None,
    ) -> None:
        if len(actor) > ACTOR_CHARS_MAX:
            raise BadInput(f"The actor has {len(actor):,} characters; {ACTOR_CHARS_MAX} are the most. Check EL_ACTOR.")
        self.engine = engine
        self.project_id = project_id
        self.actor = actor
        self.clock = clock
        self.group = group
        self.recorder = ProjectRecorder(engine, project_id)
        self.log = ProjectLog(self.recorder)

    def head(self) -> Head:
        """How long the log is, and its Merkle root."""
        return self.recorder.head()

    def entries(self, *, after: int = 0, upto: int | None = None) -> Iterator[Recorded]:
        """The log in order, read in batches; it may grow while it is read."""
        while batch := self.recorder.bodies(after=after, limit=READ_BATCH):
            after = batch[-1][0]
            if upto is not None and after >= upto:
                yield from codec.decode_each(row for row in batch if row[0] <= upto)
                return
            yield from codec.decode_each(batch)

    def stream(self, stream: str) -> list[Recorded]:
        """The entries of one stream, in version order; empty when there is no such stream."""
        return codec.decode_all(self.recorder.bodies_of([stream])[stream])

    def state(self, stream: str) -> Any:
        """A stream's state, folded from its entries; None when there is no such stream."""
        return fold(stream, self.stream(stream))

    def record(self, stream: str, *rules: Rule, key: str | None = None, also: Also | None = None) -> Written:
        """Ask the rules, one after the other, and record what they return on one stream in one transaction.

        `also` runs in that transaction, when there is something to record. A stale read is retried from the start.

        Raises:
            Refused: what the rules, or the codec, refuse; nothing is written then.
        """
        if self.group:
            return self.group(Asked(stream, rules, self.actor, key, also))
        for _ in range(RETRIES_MAX):
            past = self.stream(stream)
            facts = ask(stream, fold(stream, past), rules)
            version = past[-1].entry.version if past else 0
            if not facts:
                return Written(past[-1].position if past else 0, ())
            try:
                recordings = self.log.save(*self.entries_of(stream, version, facts, key), also=also)
            except IntegrityError:
                continue
            return Written(recordings[-1].notification.id, tuple(facts))
        raise ConcurrentWrite(f"The stream {stream} is being written to all the time; try again later.")

    def record_each(self, asked: Sequence[Asked]) -> list[Written | Exception]:
        """Many independent writes in one transaction, each with its own outcome: what it came to, or its refusal.

        The head row is taken before anything is read, so nothing read is stale and nothing has to be tried again. When
        the store fails, that is the outcome of each; what was committed is found as a repeat by whoever asks again.
        """
        try:
            with self.recorder.appending() as append:
                append.take_head()
                group = _GroupOfWrites(self, append.connection, {one.stream for one in asked})
                outcomes = [group.ask(one) for one in asked]
                first = append(group.rows)
                for one, outcome in zip(asked, outcomes, strict=True):
                    if one.also and isinstance(outcome, Written) and outcome.facts:
                        one.also(append.connection)
        except StoreError as error:
            return [error] * len(asked)
        return [group.placed(outcome, first) for outcome in outcomes]

    def record_all(self, decisions: Iterable[tuple[str, Sequence[Rule]]], *, key: str | None = None) -> list[Written]:
        """The same as `record`, for many streams, each named once, in one transaction: all are recorded or none."""
        asked = list(decisions)
        if len({stream for stream, _ in asked}) < len(asked):
            raise ValueError("a stream is named twice; give its rules together")
        for _ in range(RETRIES_MAX):
            pasts = {
                stream: codec.decode_all(bodies)
                for stream, bodies in self.recorder.bodies_of([stream for stream, _ in asked]).items()
            }
            written: list[Written] = []
            rows: list[Row] = []
            for stream, rules in asked:
                past = pasts[stream]
                facts = ask(stream, fold(stream, past), rules)
                version = past[-1].entry.version if past else 0
                rows += codec.encode(self.entries_of(stream, version, facts, key))
                # The position of what is new is known once it is appended: until then, its place among the new rows.
                written.append(Written(-len(rows) if facts else (past[-1].position if past else 0), tuple(facts)))
            if not rows:
                return written
            try:
                first = self.recorder.append_new(rows)[0]
            except ConcurrentWrite:
                continue
            return [w._replace(position=first - 1 - w.position) if w.position < 0 else w for w in written]
        raise ConcurrentWrite("The streams are being written to all the time; try again later.")

    def record_new(self, batches: Iterable[Iterable[tuple[str, Sequence[Rule]]]], *, key: str | None = None) -> int:
        """Record streams that do not exist yet, batch by batch in one transaction, without reading them first.

        Returns how many entries were written.

        Raises:
            ConcurrentWrite: one of the streams exists; nothing is written then.
        """
        count = 0
        with self.recorder.appending() as append:
            for batch in batches:
                entries: list[Entry] = []
                for stream, rules in batch:
                    entries += self.entries_of(stream, 0, ask(stream, None, rules), key)
                append(codec.encode(entries))
                count += len(entries)
        return count

    def entries_of(
        self, stream: str, version: int, facts: Sequence[AnyFact], key: str | None, actor: str | None = None
    ) -> list[Entry]:
        """Facts in their places after a version of their stream, recorded now, by `actor` (this ledger's without)."""
        now, actor = self.clock(), actor or self.actor
        return [
            Entry(stream, number, now, actor, fact, codec.schema_of(fact), key)
            for number, fact in enumerate(facts, version + 1)
        ]


class _GroupOfWrites:
    """The writes of one group on their way: each sees what those before it on its stream came to.

    Positions are counted in `rows` from 0 until the first of them is known.
    """

    def __init__(self, ledger: Ledger, connection: Connection, streams: Collection[str]) -> None:
        self.rows: list[Row] = []
        self._ledger = ledger
        self._pasts: dict[str, tuple[Any, int, int]] = {}  # state, version, position: negative when counted in `rows`
        for stream, bodies in ledger.recorder.select_bodies(connection, sorted(streams)).items():
            past = codec.decode_all(bodies)
            version, position = (past[-1].entry.version, past[-1].position) if past else (0, 0)
            self._pasts[stream] = (fold(stream, past), version, position)

    def ask(self, asked: Asked) -> Written | Exception:
        state, version, position = self._pasts[asked.stream]
        try:
            facts = ask(asked.stream, state, asked.rules)
            rows = codec.encode(self._ledger.entries_of(asked.stream, version, facts, asked.key, asked.actor))
        except Refused as refusal:
            return refusal
        if facts:
            self.rows += rows
            evolve = _evolve_of(asked.stream)
            state, version, position = reduce(evolve, facts, state), version + len(facts), -len(self.rows)
            self._pasts[asked.stream] = (state, version, position)
        return Written(position, tuple(facts))

    @staticmethod
    def placed(outcome: Written | Exception, first: int) -> Written | Exception:
        if isinstance(outcome, Written) and outcome.position < 0:
            return outcome._replace(position=first - 1 - outcome.position)
        return outcome


def _evolve_of(stream: str) -> Callable[[Any, Any], Any]:
    return _EVOLVE[stream.partition("/")[0]]


def fold(stream: str, past: Sequence[Recorded]) -> Any:
    """A stream's state, folded from its entries; None without any."""
    evolve = _evolve_of(stream)
    return reduce(lambda state, recorded: evolve(state, recorded.entry.fact), past, None)


def ask(stream: str, state: Any, rules: Sequence[Rule]) -> list[AnyFact]:
    """What the rules return, each seeing what those before it returned."""
    evolve = _evolve_of(stream)
    facts: list[AnyFact] = []
    for rule in rules:
        new = rule(state)
        facts += new
        for fact in new:
            state = evolve(state, fact)
    return facts
