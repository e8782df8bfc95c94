"""What the HTTP routes wrap their answers in: lists and single things with `as_of`, the position they were read at."""

from __future__ import annotations

import msgspec

from api.answers import TrialAnswer
from api.contents import Content
from ledger.facts.catalogue import ProfilePublished, RunnerPublished, Task
from projections.catalogue import DatasetRow


class DatasetPage(msgspec.Struct, frozen=True):
    """Dataset revisions by name."""

    datasets: list[DatasetRow]
    as_of: int


class OneDataset(msgspec.Struct, frozen=True):
    """A dataset revision."""

    dataset: DatasetRow
    as_of: int


class DatasetTasks(msgspec.Struct, frozen=True):
    """Tasks of a dataset revision in its order, each with its ordinal from 0: `[0, ["add-1", "<sha256>"]]`."""

    tasks: list[tuple[int, Task]]
    as_of: int


class RunnerPage(msgspec.Struct, frozen=True):
    """Runner revisions by name."""

    runners: list[RunnerPublished]
    as_of: int


class OneRunner(msgspec.Struct, frozen=True):
    """A runner revision."""

    runner: RunnerPublished
    as_of: int


class ProfilePage(msgspec.Struct, frozen=True):
    """Profile revisions by name; of secrets only names and fingerprints."""

    profiles: list[ProfilePublished]
    as_of: int


class OneProfile(msgspec.Struct, frozen=True):
    """A profile revision; of secrets only names and fingerprints."""

    profile: ProfilePublished
    as_of: int


class TrialPage(msgspec.Struct, frozen=True):
    """Trials of a job by attempt, then task."""

    trials: list[TrialAnswer]
    as_of: int


class OneTrial(msgspec.Struct, frozen=True):
    """A trial with its six signals."""

    trial: TrialAnswer
    as_of: int


class ContentPage(msgspec.Struct, frozen=True):
    """Every content that a trial names."""

    artifacts: list[Content]
    as_of: int


class Event(msgspec.Struct, frozen=True):
    """An entry of the log: its position, and the stored bytes as they are, which are JSON."""

    position: int
    entry: msgspec.Raw


class EventPage(msgspec.Struct, frozen=True):
    """Entries in the order of their positions."""

    events: list[Event]
    as_of: int


class StreamsAnswer(msgspec.Struct, frozen=True):
    """The entries of whole streams in version order; `left` names those that are to be asked for again."""

    streams: dict[str, list[Event]]
    left: list[str]
    as_of: int


class RetryAsked(msgspec.Struct, frozen=True):
    """The slot that a retry added, and the position of the last entry about it."""

    job_id: str
    attempt: int
    task: str
    position: int


class Upload(msgspec.Struct, frozen=True):
    """An artifact on its way: `offset` bytes of it are there. All of them, verified and durable, when `stored`."""

    sha256: str
    stored: bool
    offset: int


class StreamWritten(msgspec.Struct, frozen=True):
    """What an import came to on one stream: its last position, and how many of the facts handed in were new."""

    stream: str
    position: int
    new: int


class ImportTaken(msgspec.Struct, frozen=True):
    """What an import came to. `written` names the streams where those might have been there before."""

    entries: int
    position: int
    written: list[StreamWritten]


class SecretValues(msgspec.Struct, frozen=True):
    """The secret values that a claimed trial runs with, by parameter name."""

    secrets: dict[str, str]


class StandingAnswer(msgspec.Struct, frozen=True):
    """A read model: the position it has reached, the log's last one, and whether its definition has moved on."""

    name: str
    position: int
    head: int
    outdated: bool


class Standings(msgspec.Struct, frozen=True):
    """How far each read model has come; `as_of` is the one furthest behind."""

    projections: list[StandingAnswer]
    as_of: int


class Rebuilt(msgspec.Struct, frozen=True):
    """Read models were dropped and built again, up to this position."""

    position: int
