"""One trial of Harbor: what its `result.json` says, and what lies beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from api.importers.files import shown
from api.importers.harbor_documents import (
    CONFIG,
    LOCK,
    RESULT,
    Cut,
    TrialConfig,
    TrialLock,
    TrialResult,
    lock_name_of,
    read_document,
)
from api.importers.harbor_files import Left, left_by, rewards_differ
from api.importers.harbor_outcome import failure_of, rewards_of, status_of, utc
from api.importers.rewards import is_unusable
from api.importers.run import NoReward, Options, Source, Status, Trial
from ledger.errors import BadInput, NotFound
from ledger.rules.forms import checked_task_name


class Key(NamedTuple):
    """What one job of ours holds of a job of Harbor: an agent, its model and the source of its tasks."""

    agent: str
    model: str | None
    source: str | None


class Found(NamedTuple):
    """A trial whose result was read. `sources` begin with the result; `task_in_lock` is what the lock calls its task.

    `printed_as` is the name under which Harbor printed numbers of its group; `reward` is what counts here.
    """

    folder: Path
    name: str
    id: str
    job_id: str | None
    key: Key
    printed_as: str
    agent_version: str | None
    task: str
    task_in_lock: str | None
    locked_digest: str | None
    checksum: str | None
    started_at: datetime | None
    status: Status
    reward: float | None
    left: Left
    sources: tuple[Source, ...]
    flags: frozenset[str]

    @property
    def order(self) -> tuple[datetime, str]:
        """The place among the attempts at its task: by start, then by name."""
        return (self.started_at or datetime.max.replace(tzinfo=UTC), self.name)


def read_trial(folder: Path, options: Options) -> Found:
    """A trial that has ended.

    Raises:
        NotFound: it has no result yet.
        Cut: its result is cut off.
        BadInput: a document of it cannot be read as what it should be; names the file.
    """
    result, source = read_document(folder / RESULT, TrialResult, below=folder.parent, bytes_max=options.file_bytes_max)
    try:
        return _found(folder, result, source, options)
    except (NotFound, Cut):
        raise
    except BadInput as error:
        where = "" if shown(folder) in str(error) else f"{source.path}: "
        raise BadInput(f"{where}{error}") from error


def trial_of(found: Found, task: str, attempt: int, options: Options) -> Trial:
    """The trial as the neutral stream has it; reads its result again. Raises BadInput when that changed meanwhile."""
    source = found.sources[0]
    result, now = read_document(source.file, TrialResult, below=found.folder.parent, bytes_max=options.file_bytes_max)
    if now != source:
        raise BadInput(f"{source.path} changed while it was read; import it again.")
    reward, dimensions = rewards_of(result)
    started_at, ended_at = utc(result.started_at), utc(result.finished_at)
    return Trial(
        task,
        attempt,
        found.status,
        reward,
        failure_of(result) if found.status == "failed" else None,
        dimensions,
        found.left.failed,
        started_at,
        ended_at,
        files=found.left.files,
    )


def unfinished_task(folder: Path, options: Options) -> str | None:
    """What the lock calls the task of a trial that runs. None when it has no configuration yet: it begins only now."""
    try:
        config, _ = read_document(folder / CONFIG, TrialConfig, below=folder, bytes_max=options.file_bytes_max)
    except (NotFound, Cut):
        return None
    return lock_name_of(config.task)


def _found(folder: Path, result: TrialResult, source: Source, options: Options) -> Found:
    checked_task_name(result.task_name)
    sources, lock = [source], None
    for name in (CONFIG, LOCK):
        try:
            if name == LOCK:
                lock, document = read_document(
                    folder / LOCK, TrialLock, below=folder.parent, bytes_max=options.file_bytes_max
                )
            else:
                _, document = read_document(
                    folder / CONFIG, TrialConfig, below=folder.parent, bytes_max=options.file_bytes_max
                )
        except NotFound:
            continue
        except Cut as cut:
            # The result repeats the configuration, and the job's lock the trial's.
            document = cut.source
        sources.append(document)
    left = left_by(folder, options)
    reward, _ = rewards_of(result)
    info, agent = result.agent_info, result.config.agent
    model = info.model_info if info else None
    named = agent.name or agent.import_path
    key = Key(
        named or (info.name if info else "unknown"),
        agent.model_name if named or not model else "/".join(part for part in (model.provider, model.name) if part),
        result.source,
    )
    parts = (info.name if info else key.agent, model.name if model else None, result.source or "adhoc")
    return Found(
        folder,
        result.trial_name,
        result.id or result.trial_name,
        result.config.job_id,
        key,
        "__".join(part for part in parts if part),
        info.version if info else None,
        result.task_name,
        lock.task.name if lock else lock_name_of(result.config.task),
        sha256_of(lock.task.digest) if lock else None,
        sha256_of(result.task_checksum),
        utc(result.started_at, assume=True),
        status_of(result),
        reward if isinstance(reward, float) else None,
        left,
        (*sources, *left.sources),
        frozenset(_flags(folder, result, reward)),
    )


def _flags(folder: Path, result: TrialResult, reward: float | NoReward | None) -> set[str]:
    flags = set()
    rewards = result.verifier_result.rewards if result.verifier_result else None
    if isinstance(reward, NoReward) and reward.why == "no-reward-key":
        flags.add("no-reward-key")
    if is_unusable(reward):
        flags.add("reward-rejected")
    if result.reward_valid is False and isinstance(reward, float):
        flags.add("tool-calls-reward-invalid")
    if any(at is not None and at.tzinfo is None for at in (result.started_at, result.finished_at)):
        flags.add("time-zone-unknown")
    if not result.step_results and rewards_differ(folder, rewards):
        flags.add("reward-files-disagree")
    return flags


def sha256_of(digest: str | None) -> str | None:
    """The sha256 in a digest with or without the name of its algorithm; None when it is another or none."""
    text = (digest or "").removeprefix("sha256:")
    return text if len(text) == 64 and set(text) <= set("0123456789abcdef") else None
