"""Tables: CSV that no spreadsheet runs, Parquet with types; a gap is an empty cell in both."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from api.client import Client
from api.exporters.csv_table import RISKY
from tests.given import NASTY_FLOATS, NASTY_NAMES
from tests.given_exports import SHA, client_without_sync, exported, imported


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = client_without_sync(tmp_path_factory.mktemp("home"))
    yield client
    client.workspace.engine.dispose()


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def undone(cell: str) -> str:
    """A text as it was: what docs/exporting.md says a reader does."""
    return cell.removeprefix("'")


def test_a_gap_is_an_empty_cell(client: Client, tmp_path: Path) -> None:
    """Every slot that was asked for has a row; without a reward its cell is empty, whatever the reason."""
    job = imported(client, tmp_path / "a.jsonl")
    exported(client, job, "csv", tmp_path / "a.csv")
    rows = {(undone(row["task"]), row["attempt"]): row for row in cells(tmp_path / "a.csv")}
    assert len(rows) == 5 * 2
    assert {key for key, row in rows.items() if row["reward"] == ""} == {
        ("=1+1", "2"), ("任务 三", "2"), ("never tried", "1"), ("never tried", "2"), ("c", "1"),
    }  # fmt: skip
    assert (rows["never tried", "1"]["status"], rows["never tried", "1"]["no_reward"]) == ("", "")
    assert (rows["任务 三", "1"]["status"], rows["任务 三", "1"]["reward"]) == ("failed", "1.0")
    assert [rows["c", "2"][name] for name in ("started_at", "duration_s")] == ["2026-01-02T03:04:05Z", "1.5"]
    assert rows["add/1", "2"]["reward"] == "-0.0"


def test_no_text_is_run_and_every_number_is_one(client: Client, tmp_path: Path) -> None:
    """No cell of text begins as a formula does; -1.5 and -9 stay numbers; taking the apostrophe off gives the text."""
    names = [*NASTY_NAMES, "=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "'quoted", "＝1", 'a,"b"']
    rows: list[Any] = [
        {"task": name, "attempt": 1, "reward": -1.5, "error": {"type": "@x", "exit_code": -9}} for name in names
    ]
    job = imported(client, tmp_path / "a.jsonl", rows)
    exported(client, job, "csv", tmp_path / "a.csv")
    found = cells(tmp_path / "a.csv")
    assert [undone(row["task"]) for row in found] == names
    for row in found:
        assert (row["reward"], row["exit_code"], row["error_type"]) == ("-1.5", "-9", "'@x")
        del row["reward"], row["exit_code"]
        assert not any(cell.startswith(tuple(set(RISKY) - {"'"})) for cell in row.values())


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_numbers_come_back_to_the_last_bit(client: Client, tmp_path: Path, form: str) -> None:
    """Rewards are written so that reading them gives the same float."""
    rows = [{"task": f"t{n}", "attempt": 1, "reward": value} for n, value in enumerate(NASTY_FLOATS)]
    job = imported(client, tmp_path / "a.jsonl", rows)
    exported(client, job, form, tmp_path / "out")
    read = cells(tmp_path / "out") if form == "csv" else pq.read_table(tmp_path / "out").to_pylist()
    assert [repr(float(row["reward"])) for row in read] == [repr(value) for value in NASTY_FLOATS]


def test_parquet_is_typed(client: Client, tmp_path: Path) -> None:
    """A reader gets numbers, instants in UTC, maps and lists, and null where nothing was measured."""
    job = imported(client, tmp_path / "a.jsonl")
    exported(client, job, "parquet", tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    rows = {(row["task"], row["attempt"]): row for row in table.to_pylist(maps_as_pydicts="strict")}
    assert str(table.schema.field("started_at").type) == "timestamp[us, tz=UTC]"
    assert rows["add/1", 1]["dimensions"] == {"style": 0.5}
    assert rows["=1+1", 1]["artifacts"] == [{"name": "@a", "sha256": SHA, "size": 3, "role": "output"}]
    assert rows["c", 2]["ended_at"] == datetime(2026, 1, 2, 3, 4, 6, 500_000, tzinfo=UTC)
    assert rows["任务 三", 2]["reward"] is None
    assert rows["任务 三", 2]["no_reward"] == "not-finite"
    never = rows["never tried", 1]
    assert {name for name, value in never.items() if value is not None} == {
        "job", "dataset", "task", "attempt", "extra",
    }  # fmt: skip


def test_parquet_carries_the_jobs_own_numbers(client: Client, tmp_path: Path) -> None:
    """Whoever has only the file knows which job it is, how much was measured and what came out."""
    job = imported(client, tmp_path / "a.jsonl")
    exported(client, job, "parquet", tmp_path / "a.parquet")
    about = json.loads(pq.read_schema(tmp_path / "a.parquet").metadata[b"evalledger"])
    result = client.result(job)
    assert (about["job"], about["attempts"], about["metrics"]["score"]) == (job, 2, result.score)
    assert about["metrics"]["score_counts"]["missing"] == result.score_counts.missing == 5


def test_extra_attempts_have_rows(client: Client, tmp_path: Path) -> None:
    """What is beyond k is there and says so."""
    rows = [{"task": "a", "attempt": number, "reward": 1} for number in (1, 2, 7)]
    job = imported(client, tmp_path / "a.jsonl", rows, attempts=3)
    exported(client, job, "csv", tmp_path / "a.csv")
    assert [(row["attempt"], row["extra"], row["reward"]) for row in cells(tmp_path / "a.csv")] == [
        ("1", "false", "1.0"), ("2", "false", "1.0"), ("3", "false", ""), ("7", "true", "1.0"),
    ]  # fmt: skip
