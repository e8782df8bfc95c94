"""Promises of `el serve`: where it listens and for whom, one process on SQLite, and an orderly end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
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
from tests import postgres
from tests.given_commands import until
from tests.test_cli import El, el  # noqa: F401 - the fixture

EL = Path(sys.executable).parent / "el"


class Served:
    """`el serve` in a process of its own."""

    def __init__(self, home: Path, *options: str, **environ: str) -> None:
        self.home = home
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("EL_")}
        self.process = subprocess.Popen(
            [EL, "serve", "--port", "0", *options], env=inherited | {"EL_HOME": str(home)} | environ, text=True,
            stdout=subprocess.PIPE, stderr=(home.parent / "log").open("a"),
        )  # fmt: skip
        assert self.process.stdout
        self.first_line = self.process.stdout.readline()
        found = re.search(r"http://\S+", self.first_line)
        self.url = found.group() if found else ""
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def end(self, how: signal.Signals = signal.SIGTERM, *, within_s: float = 20) -> int:
        """Tell it to stop; its exit code."""
        self.process.send_signal(how)
        return self.process.wait(within_s)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "home", "--insecure-local", EL_SHUTDOWN_S="2", EL_METRICS_KEY="scrape")
    assert served.url, (tmp_path / "log").read_text()
    yield served
    served.process.kill()
    served.process.wait()


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


def test_one_process_serves_a_file(served: Served) -> None:
    """On SQLite a second server is refused, until the first has ended."""
    second = Served(served.home, "--insecure-local")
    assert second.process.wait(20) == 1
    assert served.end() == 0
    third = Served(served.home, "--insecure-local")
    assert third.url
    assert third.end() == 0


def test_any_number_serves_postgresql(tmp_path: Path) -> None:
    """Two servers on one database: what one has answered for, the other shows."""
    url = postgres.fresh_url()
    both = [Served(tmp_path / "home", "--insecure-local", EL_DATABASE_URL=url) for _ in range(2)]
    try:
        made = both[0].client.post("/v1/projects/default/profiles", json={"ref": "a@1", "params": {}, "secrets": {}})
        assert made.status_code == 201, made.text
        position = made.json()["position"]
        seen = both[1].client.get("/v1/projects/default/profiles", params={"min_position": position})
        assert [profile["ref"] for profile in seen.json()["profiles"]] == ["a@1"]
    finally:
        assert [one.end() for one in both] == [0, 0]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order_while_it_is_written_to(served: Served, how: signal.Signals) -> None:
    """Eight clients write and one follows the log: after the signal it ends with 0 in time, the stream ends, and every
    write that was answered is in the log.
    """
    answered: list[str] = []
    streamed: list[str] = []

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
        with (
            suppress(httpx.HTTPError),
            httpx.stream("GET", f"{served.url}/v1/projects/default/events", headers=events, timeout=30) as stream,
        ):
            streamed.extend(line for line in stream.iter_lines() if line.startswith("id:"))

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


def test_a_request_that_does_not_end_is_cut_off(served: Served) -> None:
    """A client that never sends the rest of its body keeps the server no longer than EL_SHUTDOWN_S and a little."""
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as slow:
        head = "POST /v1/projects/default/profiles HTTP/1.1\r\nHost: localhost\r\n"
        slow.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        time.sleep(0.3)
        started = time.monotonic()
        assert served.end() == 0
        assert 1 < time.monotonic() - started < 10


def test_readiness_tells_of_read_models_that_stand_still(served: Served) -> None:
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


def test_numbers_by_project_are_for_who_has_the_key_of_metrics(served: Served) -> None:
    """Anybody sees totals; names of projects are shown with EL_METRICS_KEY only."""
    served.client.post("/v1/projects", json={"name": "hidden-project"})
    served.client.get("/v1/projects/default")
    opened = served.client.get("/metrics").text
    assert "el_log_entries" in opened
    for wrong in ("", "Bearer", "Bearer scrap", "Basic scrape", "Bearer é"):
        assert "project=" not in served.client.get("/metrics", headers={"Authorization": wrong.encode()}).text
    shown = served.client.get("/metrics", headers={"Authorization": "Bearer scrape"}).text
    assert 'el_project_log_entries{project="default"} 1.0' in shown


def test_without_uvicorns_own_end_the_exit_code_would_be_the_signals(tmp_path: Path) -> None:
    """Twin: with uvicorn's way of taking signals the process dies of the signal, which the test above would see."""
    code = (
        "import uvicorn, api.serving as s; del s._Server.capture_signals;"
        "import sys; sys.argv = ['el', 'serve', '--port', '0', '--insecure-local'];"
        "from api.cli.main import main; main()"
    )
    environ = {**os.environ, "EL_HOME": str(tmp_path / "home")}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == -signal.SIGTERM
