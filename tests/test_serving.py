"""Promises of `el serve`: where it listens and for whom, one process on SQLite, and an orderly end."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import httpx
import pytest
import sqlalchemy as sa

from api import serving
from api.following import standings
from api.settings import Settings
from api.wiring import Workspace
from ledger.database import writing
from ledger.errors import BadInput, NotAllowed
from projections.following import positions
from tests.given_commands import until
from tests.given_doors import Process
from tests.test_cli import El, el  # noqa: F401 - the fixture

HEAD_SENT_MAX = 64 << 20  # far beyond what the kernel holds back between two processes


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Process]:
    served = Process(tmp_path / "home", "--insecure-local", EL_SHUTDOWN_S="2")
    assert served.url, served.log.read_text()
    yield served
    served.process.kill()
    served.process.wait()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One for tests that leave it as it was for the next."""
    served = Process(tmp_path_factory.mktemp("shared") / "home", "--insecure-local", EL_METRICS_KEY="scrape")
    assert served.url, served.log.read_text()
    yield served
    assert served.end() == 0


@pytest.mark.parametrize(
    ("host", "has_keys", "insecure_local", "refused"),
    [
        ("127.0.0.1", False, False, "el key issue"),
        ("127.0.0.1", False, True, None),
        ("127.0.0.1", True, False, None),
        ("localhost", False, True, None),
        ("::1", False, True, None),
        ("0.0.0.0", False, False, "el key issue"),
        ("0.0.0.0", True, False, None),
        ("0.0.0.0", False, True, "--insecure-local"),
        ("0.0.0.0", True, True, "--insecure-local"),
        ("::", True, True, "--insecure-local"),
        ("192.0.2.7", False, True, "--insecure-local"),
        ("", True, True, "--insecure-local"),
    ],
)
def test_without_keys_only_this_machine_is_answered(
    host: str, has_keys: bool, insecure_local: bool, refused: str | None
) -> None:
    """Every combination of address, keys and --insecure-local; a refusal says what to run."""
    if refused is None:
        serving.check_binding(host, has_keys=has_keys, insecure_local=insecure_local)
        return
    with pytest.raises(NotAllowed, match=refused):
        serving.check_binding(host, has_keys=has_keys, insecure_local=insecure_local)


def test_a_store_without_keys_is_not_served(el: El) -> None:  # noqa: F811
    """The command refuses in one sentence, before it listens; with a key that was revoked since, too."""
    said = el("serve", "--port", "0")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "el key issue" in said.err
    issued = el("key", "issue", "--name", "k", "--scope", "admin", "--json").document
    assert serving.has_key(Workspace(Settings()))
    assert el("key", "revoke", issued["id"]).code == 0
    assert not serving.has_key(Workspace(Settings()))


def test_a_port_that_is_taken_is_one_sentence(el: El) -> None:  # noqa: F811
    """It names the port and the option."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = el("serve", "--insecure-local", "--port", str(taken.getsockname()[1]))
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "--port" in said.err


def test_an_address_of_another_machine_is_refused() -> None:
    """In a sentence as well."""
    with pytest.raises(BadInput, match=r"--host|cannot listen"):
        serving.bind("192.0.2.7", 0)


def test_one_process_serves_a_file(served: Process) -> None:
    """On SQLite a second server is refused, until the first has ended."""
    second = Process(served.home, "--insecure-local")
    assert second.process.wait(20) == 1
    assert "serves" in second.log.read_text().splitlines()[-1]
    assert served.end() == 0
    with serving.only_process_of(Workspace(Settings(home=served.home))):
        pass


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order_while_it_is_written_to(served: Process, how: signal.Signals) -> None:
    """Eight clients write and one follows the log: after the signal it ends with 0 in time, the stream ends as a whole
    answer does, no library complains, and every write that was answered is in the log.
    """
    answered: list[str] = []
    streamed: list[str] = []
    ended: list[str] = []

    def write(writer: int) -> None:
        with suppress(httpx.HTTPError), httpx.Client(base_url=served.url, timeout=30) as client:
            for number in range(10_000):
                ref = f"w-{writer}-{number}@1"
                made = client.post("/v1/projects/default/profiles", json={"ref": ref, "params": {}, "secrets": {}})
                if made.status_code != 201:
                    return
                answered.append(ref)

    def follow() -> None:
        events = {"Accept": "text/event-stream"}
        with httpx.stream("GET", f"{served.url}/v1/projects/default/events", headers=events, timeout=30) as stream:
            streamed.extend(line for line in stream.iter_lines() if line.startswith("id:"))
        ended.append("whole")  # a stream that is cut off raises

    threads = [Thread(target=write, args=(writer,)) for writer in range(8)] + [Thread(target=follow)]
    for thread in threads:
        thread.start()
    until(lambda: len(answered) > 50, within_s=30)
    started = time.monotonic()
    assert served.end(how) == 0
    assert time.monotonic() - started < 10
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    workspace = Workspace(Settings(home=served.home))
    written = {recorded.entry.stream for recorded in workspace.ledger("default").entries()}
    assert {f"profile/{ref}" for ref in answered} <= written
    assert streamed
    assert ended == ["whole"]
    assert [line for line in served.said() if line["event"] == "library"] == []


def test_a_request_that_does_not_end_is_cut_off(served: Process) -> None:
    """A client that never sends the rest of its body keeps the server no longer than EL_SHUTDOWN_S and a little."""
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as slow:
        head = "POST /v1/projects/default/profiles HTTP/1.1\r\nHost: localhost\r\n"
        slow.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        time.sleep(0.3)
        started = time.monotonic()
        assert served.end() == 0
        assert 1 < time.monotonic() - started < 10


@pytest.mark.parametrize("piece", [b"x: " + b"a" * 65_000 + b"\r\n", b"a" * 65_000], ids=["headers", "one-header"])
def test_a_head_that_does_not_end_is_not_kept(shared: Process, piece: bytes) -> None:
    """Whoever sends headers without end, or one without end, is cut off long before they fill the memory."""
    host, port = shared.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as endless:
        endless.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nx: ")
        sent = 0
        with suppress(ConnectionError):
            while sent < HEAD_SENT_MAX:
                endless.sendall(piece)
                sent += len(piece)
    assert sent < HEAD_SENT_MAX
    assert shared.client.get("/health/live").status_code == 200


def test_readiness_tells_of_read_models_that_stand_still(served: Process) -> None:
    """Live stays 200; ready turns 503 with a reason that names no project, and back after a rebuild is possible."""
    assert served.client.get("/health/ready").json() == {"status": "ok"}
    served.client.get("/v1/projects/default")
    workspace = Workspace(Settings(home=served.home))
    until(lambda: standings(workspace.engine)["default"].reached > 0)
    with writing(workspace.engine) as connection:
        connection.execute(positions.update().values(definition=0, position=sa.literal(0)))
    until(lambda: served.client.get("/health/ready").status_code == 503)
    said = served.client.get("/health/ready")
    assert "stand still" in said.json()["status"]
    assert "default" not in said.text
    assert served.client.get("/health/live").status_code == 200


def test_numbers_by_project_are_for_who_has_the_key_of_metrics(shared: Process) -> None:
    """Anybody sees totals; names of projects are shown with EL_METRICS_KEY only."""
    shared.client.post("/v1/projects", json={"name": "hidden-project"})
    shared.client.get("/v1/projects/default")
    opened = shared.client.get("/metrics").text
    assert "el_log_entries" in opened
    for wrong in ("", "Bearer", "Bearer scrap", "Basic scrape", "Bearer é"):
        assert "project=" not in shared.client.get("/metrics", headers={"Authorization": wrong.encode()}).text
    shown = shared.client.get("/metrics", headers={"Authorization": "Bearer scrape"}).text
    assert 'el_project_log_entries{project="default"} 1.0' in shown


def test_a_stream_that_is_cut_off_would_be_seen(tmp_path: Path) -> None:
    """Twin: streams that are left to their library when the server stops end in the middle, and a library complains."""
    sabotage = "import api.live, api.routes.events; api.live.CHECK_S, api.routes.events.END_S_MAX = 60, 0"
    served = Process(tmp_path / "home", "--insecure-local", sabotage=sabotage)
    events = {"Accept": "text/event-stream"}
    with served.client.stream("GET", "/v1/projects/default/events", headers=events) as stream:
        served.process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.RemoteProtocolError):
            list(stream.iter_lines())
    assert served.process.wait(20) == 0
    assert [line for line in served.said() if line["event"] == "library"]


def test_without_uvicorns_own_end_the_exit_code_would_be_the_signals(tmp_path: Path) -> None:
    """Twin: with uvicorn's way of taking signals the process dies of the signal, which the test above would see."""
    sabotage = "import uvicorn, api.serving; del api.serving._Server.capture_signals"
    served = Process(tmp_path / "home", "--insecure-local", sabotage=sabotage)
    assert served.url
    assert served.end() == -signal.SIGTERM
