"""What holds while any file is read: a fault names the file, and a file that was cut gives what is whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from api.importers.files import shown
from api.importers.run import Options
from api.importers.strict_json import NotJson
from ledger.errors import BadInput


@contextmanager
def reading(path: Path, options: Options, flags: set[str]) -> Iterator[None]:
    """Read a file in here: that it was cut is flagged `source-incomplete`, and what was taken so far stays.

    Raises BadInput, naming the file, for whatever else is wrong with it; with `strict`, for a cut one too.
    """
    try:
        yield
    except NotJson as error:
        if options.strict:
            raise BadInput(f"{shown(path)}: {error}.") from error
        flags.add("source-incomplete")
    except BadInput as error:
        raise BadInput(f"{shown(path)}: {error}") from error
