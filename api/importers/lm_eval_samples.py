"""A samples file of lm-eval: one line for each document and filter, its metrics under their own names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from api.importers.files import Lines, shown
from api.importers.rewards import is_unusable, reward_of
from api.importers.run import NoReward, Options, Source, Trial
from api.importers.strict_json import NotJson, digest_of_value, read_value
from ledger.errors import BadInput
from ledger.rules.forms import checked_task_name

NO_FILTER = "none"  # what lm-eval calls a task's only filter, and what its old files left out


class Row(msgspec.Struct, frozen=True):
    """What every line has beside the values of its metrics. Documents are counted from 0."""

    doc_id: Annotated[int, Meta(ge=0)] | str
    filter: str = NO_FILTER
    metrics: list[str] | None = None
    doc_hash: str | None = None


class Pick(NamedTuple):
    """The metric and the filter that the reward is taken from."""

    metric: str
    filter: str

    def __str__(self) -> str:
        return f"{self.metric},{self.filter}"


class _Seen(NamedTuple):
    """Where a document and filter were seen first, and a digest of what the line held."""

    line: int
    content: int


class LmEvalSamples:
    """The lines of one file, checked one against the other. `hashes` names the documents in the file's order."""

    def __init__(self, path: Path, options: Options, printed: Iterable[str]) -> None:
        """Read the file; `printed` are the metrics that the results name, for files that do not list their own.

        Raises BadInput when a line is no sample, or contradicts another; names the line.
        """
        self.hashes: dict[str, str | None] = {}
        self.filters: dict[str, dict[str, None]] = {}
        self.flags: set[str] = set()
        self._printed = tuple(printed)
        self._values: dict[str, dict[Pick, float | NoReward]] = {}
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._kinds: dict[str, type] = {}
        self.source = self._read(path, options)

    def trials(self, pick: Pick) -> Iterator[Trial]:
        """Each document's one attempt; what is not picked becomes the dimension `<metric>,<filter>`."""
        for doc, values in self._values.items():
            reward = values.get(pick, NoReward("not-reported"))
            if is_unusable(reward):
                self.flags.add("reward-rejected")
            others = {str(name): value for name, value in values.items() if name != pick}
            if any(is_unusable(value) for value in others.values()):
                self.flags.add("dimensions-rejected")
            dimensions = {name: value for name, value in others.items() if isinstance(value, float)}
            yield Trial(doc, 1, "succeeded", reward, dimensions=dimensions or None)

    def _read(self, path: Path, options: Options) -> Source:
        lines = Lines(path, bytes_max=options.file_bytes_max)
        for number, line in lines:
            where = f"Line {number:,} of {shown(Path(path.name))}"
            if line.isspace():
                continue
            try:
                self._take(number, read_value(line))
            except NotJson as error:
                # Only the last line can be without its line end: there the file was cut.
                if line.endswith(b"\n") or options.strict:
                    raise BadInput(f"{where}: {error}.") from error
                self.flags.add("source-incomplete")
            except BadInput as error:
                raise BadInput(f"{where}: {error}") from error
        assert lines.source is not None  # noqa: S101 - told to mypy; the lines were read to the end
        return lines.source

    def _take(self, number: int, value: Any) -> None:
        try:
            row = msgspec.convert(value, Row)
        except msgspec.ValidationError as error:
            raise BadInput(f"it is no sample of lm-eval: {error}.") from error
        doc = checked_task_name(str(row.doc_id))
        if self._kinds.setdefault(doc, type(row.doc_id)) is not type(row.doc_id):
            raise BadInput(f'the file has both {doc} and "{doc}" as a doc_id; give them one spelling.')
        content = digest_of_value(value)
        first = self._seen.setdefault((doc, row.filter), _Seen(number, content))
        if first.line != number:
            if first.content != content:
                raise BadInput(
                    f"it says other things of document {doc} and filter {row.filter!r} than line {first.line:,}; "
                    "keep the line that holds."
                )
            self.flags.add("duplicate-rows-dropped")
            return
        self._add(doc, row, value)

    def _add(self, doc: str, row: Row, value: Mapping[str, Any]) -> None:
        had = self.hashes.setdefault(doc, row.doc_hash)
        if had != row.doc_hash:
            raise BadInput(f"document {doc} has another doc_hash than in a line before; the file mixes two runs.")
        names = [name for name in self._printed if name in value] if row.metrics is None else row.metrics
        self.filters.setdefault(row.filter, {}).update(dict.fromkeys(names))
        values = self._values.setdefault(doc, {})
        for name in names:
            values[Pick(name, row.filter)] = reward_of(value[name]) if name in value else NoReward("not-reported")
