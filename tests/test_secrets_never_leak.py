"""The promise of secrets, end to end: a secret value stands nowhere but sealed, whatever is read or refused."""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from api.client import Client, connect
from api.forms.profile import read_profile
from api.settings import Settings
from ledger.database import reading, writing
from ledger.digests import digest_of_names
from ledger.errors import BadInput, Conflict, DamagedStore, EvalLedgerError
from ledger.facts.catalogue import Parameter, ProfilePublished, RunnerPublished, Task
from ledger.vault import open_secrets, sealed_secrets
from tests.test_forms_profile import SEED

NAME = "MODEL_API_KEY"
VALUE = 'sk-"Leak\\canary"-7f3a9d'
OTHER = "sk-another-canary-51c0"
REF = "team/eval-my-model@1"


def seed_with(value: str) -> str:
    """The seed's profile file with another secret value."""
    return SEED.replace('"YOUR_ENVLOOP_KEY"', msgspec.json.encode(value).decode())


def spellings(value: str) -> list[bytes]:
    """The value as text, inside JSON, inside a Python repr, as UTF-16, in hex and in base64."""
    raw = value.encode()
    quoted = (msgspec.json.encode(value)[1:-1], repr(value)[1:-1].encode(), repr(raw)[2:-1].encode())
    return [raw, *quoted, value.encode("utf-16-le"), raw.hex().encode(), base64.b64encode(raw).rstrip(b"=")]


def shows(data: bytes | str, *values: str) -> bool:
    """Whether one of the values can be read in the data."""
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return any(spelling in data for value in values for spelling in spellings(value))


def files_that_show(root: Path, *values: str) -> list[str]:
    """The files below a folder in which one of the values can be read."""
    return sorted(path.name for path in root.rglob("*") if path.is_file() and shows(path.read_bytes(), *values))


def create(el: Client, tmp_path: Path, value: str, *, name: str | None = None) -> str:
    """Create the seed's profile with a secret value, through its file; the outcome."""
    path = tmp_path / "handed-in.json"
    text = seed_with(value)
    path.write_text(text.replace("team/eval-my-model", name) if name else text)
    return el.create_profile(*read_profile(path)).outcome


@pytest.fixture
def el(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client on a store of its own, whose key lies in its file."""
    monkeypatch.delenv("EL_SECRET_KEY", raising=False)
    client = connect(settings=Settings(home=tmp_path / "home", database_url=None, project="default"))
    yield client
    client.workspace.engine.dispose()


def evaluated(el: Client) -> str:
    """A job that reads the secret, with a trial that is reported; its id."""
    reads = (Parameter(NAME, required=True), Parameter("MODEL_NAME"))
    el.publish_runner(RunnerPublished("r@1", "external", reads))
    el.publish_dataset("d@1", [Task("t", digest_of_names("t"))], runner="r@1")
    job = el.submit_job("d@1", profile=REF)
    with el.trial(job.id, "t", 1) as trial:
        trial.reward(1.0)
    return job.id


def test_the_store_holds_the_value_nowhere(el: Client, tmp_path: Path) -> None:
    """No file of the store, database, journal, key and artifacts alike, holds the value in any spelling."""
    assert create(el, tmp_path, VALUE) == "written"
    evaluated(el)
    assert "ledger.db" in {path.name for path in el.workspace.home.rglob("*")}
    assert files_that_show(el.workspace.home, VALUE) == []


@pytest.mark.parametrize("number", range(len(spellings(VALUE))))
def test_the_scan_finds_a_value_that_is_there(el: Client, tmp_path: Path, number: int) -> None:
    """Sabotage: planted in a column of the database, each spelling is found."""
    create(el, tmp_path, VALUE)
    with writing(el.workspace.engine) as connection:
        connection.execute(sa.update(sealed_secrets).values(sealed=b"\0" + spellings(VALUE)[number] + b"\0"))
    assert files_that_show(el.workspace.home, VALUE) == ["ledger.db"]


def test_facts_and_answers_hold_a_name_and_a_fingerprint(el: Client, tmp_path: Path) -> None:
    """No fact and no answer of the client shows the value, in its repr or as JSON."""
    create(el, tmp_path, VALUE)
    job_id = evaluated(el)
    for entry in el.ledger.entries():
        assert not shows(msgspec.json.encode(entry) + repr(entry).encode(), VALUE)
    (trial,) = el.trials(job_id)
    answers = (
        *(el.profile(REF), el.profiles(), el.runners(), el.datasets(), el.job(job_id), el.result(job_id)),
        *(trial, el.events(), el.submit_job("d@1", profile=REF, dry_run=True)),
    )
    for answer in answers:
        assert not shows(f"{answer!r} {answer}", VALUE)
        assert not shows(msgspec.json.encode(answer, enc_hook=str), VALUE)
    assert not shows(repr((el, el.workspace, el.workspace.secrets, vars(el))), VALUE)
    profile = el.profile(REF)
    assert list(profile.secrets) == [NAME]
    assert NAME not in profile.params


def test_the_one_who_runs_a_trial_gets_the_value(el: Client, tmp_path: Path) -> None:
    """Sealed is not lost: the store opens it again, also in another process that has the key."""
    create(el, tmp_path, VALUE)
    again = connect(settings=el.workspace.settings)
    with reading(again.workspace.engine) as connection:
        assert open_secrets(connection, again.workspace.secrets, "default", REF) == {NAME: VALUE}


def test_the_same_file_again_changes_nothing_and_another_value_is_a_conflict(el: Client, tmp_path: Path) -> None:
    """The fingerprint tells the two apart; the refusal names the secret, and shows neither value."""
    assert create(el, tmp_path, VALUE) == "written"
    size = el.ledger.head().size
    assert create(el, tmp_path, VALUE) == "unchanged"
    with pytest.raises(Conflict) as refused:
        create(el, tmp_path, OTHER)
    assert refused.value.differs == (f"secrets.{NAME}",)
    assert not shows(told(refused.value), VALUE, OTHER)
    assert el.ledger.head().size == size
    assert files_that_show(el.workspace.home, VALUE, OTHER) == []
    with reading(el.workspace.engine) as connection:
        assert open_secrets(connection, el.workspace.secrets, "default", REF) == {NAME: VALUE}


@pytest.mark.parametrize("trouble", ["no table", "read only", "not text", "too large", "other key"])
def test_no_error_on_the_way_shows_the_value(el: Client, tmp_path: Path, trouble: str) -> None:
    """Whatever fails while a secret is stored or opened, the error and all errors behind it are without the value."""
    value = {"not text": VALUE + "\ud800", "too large": VALUE * 10_000}.get(trouble, VALUE)
    store = el.workspace.engine
    if trouble == "no table":
        sealed_secrets.drop(store)
    elif trouble == "read only":
        sa.event.listen(store, "checkout", lambda raw, *_: raw.execute("PRAGMA query_only=ON"))
    elif trouble == "other key":
        create(el, tmp_path, VALUE)
        (el.workspace.home / "secret.key").write_text("00" * 32)
        el = connect(settings=el.workspace.settings)
    with pytest.raises(EvalLedgerError) as refused:
        el.create_profile(REF, {}, {NAME: value})
    assert not shows(told(refused.value), VALUE)


def test_a_malformed_file_is_refused_without_the_value(tmp_path: Path) -> None:
    """Cut anywhere, the file is refused by a sentence that does not hold the value, and neither does its traceback."""
    path, text = tmp_path / "profile.json", seed_with(VALUE)
    for end in range(0, len(text) - 2, 7):
        path.write_text(text[:end])
        with pytest.raises(BadInput) as refused:
            read_profile(path)
        assert not shows(told(refused.value), VALUE)


def test_logs_at_their_loudest_hide_the_value(el: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With every logger at DEBUG, statements and rows of SQLAlchemy too, the value is in no record."""
    caplog.set_level(logging.DEBUG)
    for name in ("sqlalchemy", "sqlalchemy.engine", "sqlalchemy.pool"):
        caplog.set_level(logging.DEBUG, logger=name)
    loud = connect(settings=el.workspace.settings)
    loud.workspace.engine.echo = "debug"
    create(loud, tmp_path, VALUE)
    evaluated(loud)
    with pytest.raises(Conflict):
        create(loud, tmp_path, OTHER)
    assert "INSERT INTO sealed_secrets" in caplog.text
    assert "parameters hidden" in caplog.text
    assert not shows(caplog.text, VALUE, OTHER)
    logging.getLogger("sqlalchemy.engine").debug("planted %r", VALUE)
    assert shows(caplog.text, VALUE)


def test_sealed_bytes_open_only_in_their_own_row(el: Client, tmp_path: Path) -> None:
    """Copied to another profile, name or project, they do not open: who can write the table still learns nothing."""
    create(el, tmp_path, VALUE)
    create(el, tmp_path, OTHER, name="team/mine")
    box, row = el.workspace.secrets, sealed_secrets.c
    with writing(el.workspace.engine) as connection:
        sealed = connection.execute(sa.select(row.sealed).where(row.profile == REF)).scalar_one()
        copies = [("default", "team/mine@1", NAME), ("default", "new@1", NAME), ("mine", REF, NAME)]
        connection.execute(sa.delete(sealed_secrets).where(row.profile == "team/mine@1"))
        for project, profile, name in copies:
            values = {"project_id": project, "profile": profile, "name": name, "sealed": sealed}
            connection.execute(sa.insert(sealed_secrets).values(values))
    with reading(el.workspace.engine) as connection:
        for project, profile, _ in copies:
            with pytest.raises(DamagedStore) as refused:
                open_secrets(connection, box, project, profile)
            assert not shows(told(refused.value), VALUE)
        assert open_secrets(connection, box, "default", REF) == {NAME: VALUE}
    with writing(el.workspace.engine) as connection:
        connection.execute(sa.update(sealed_secrets).where(row.profile == REF).values(name="AGENT_NAME"))
    with reading(el.workspace.engine) as connection, pytest.raises(DamagedStore):
        open_secrets(connection, box, "default", REF)


def test_the_same_value_has_another_fingerprint_elsewhere(el: Client, tmp_path: Path) -> None:
    """Fingerprints in the open log do not tell that two profiles share a secret."""
    create(el, tmp_path, VALUE)
    create(el, tmp_path, VALUE, name="team/mine")
    facts = [entry.entry.fact for entry in el.ledger.entries()]
    prints = {fact.secrets[NAME] for fact in facts if isinstance(fact, ProfilePublished)}
    assert len(prints) == 2


def told(error: BaseException) -> str:
    """Everything that an error says: sentence, repr, what differs, and the tracebacks of all errors behind it."""
    return f"{error} {error!r} {getattr(error, 'differs', '')} " + "".join(traceback.format_exception(error))
