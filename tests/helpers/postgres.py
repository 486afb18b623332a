"""A throw-away PostgreSQL server: a fixture, and what it takes to start one."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "s3cret-of-the-test"


@dataclass(frozen=True)
class Server:
    """A server that only this machine reaches."""

    port: int
    start: Callable[[], None] = lambda: None
    stop: Callable[[], None] = lambda: None

    def url(self, database: str, *, password: str = PASSWORD) -> str:
        return f"postgresql://tuner:{password}@127.0.0.1:{self.port}/{database}"

    def new(self, database: str) -> str:
        """Make an empty database; its URL."""
        self.tell(f"CREATE DATABASE {database}")
        return self.url(database)

    def tell(self, order: str) -> None:
        psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(order)

    def drop_connections(self, database: str) -> None:
        """What a restart or a network does to them."""
        self.tell(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
        )


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Skips, with the reason, where PostgreSQL is not installed."""
    with running() as found:
        if found is None:
            pytest.skip("PostgreSQL's server is not installed (Debian: apt install postgresql)")
        yield found


@contextmanager
def running() -> Iterator[Server | None]:
    """A server as long as it is needed; none where PostgreSQL is not installed."""
    programs = _programs()
    if programs is None:
        yield None
        return
    # Not pytest's folder: the server's user may not enter that.
    place = Path(tempfile.mkdtemp(prefix="fixnorm-postgres-"))
    data, log, secret = place / "data", place / "log", place / "secret"
    secret.write_text(PASSWORD)
    account = _account()
    if account:
        for path in (place, secret):
            shutil.chown(path, account)
    try:
        trust = ["--username=tuner", f"--pwfile={secret}", "--auth=scram-sha-256"]
        _run(account, programs / "initdb", f"--pgdata={data}", *trust, "--no-sync")
        port = _free_port()
        options = f"-c port={port} -c listen_addresses=127.0.0.1 -c fsync=off"
        options += f" -c unix_socket_directories={place}"
        control = (programs / "pg_ctl", f"--pgdata={data}", f"--log={log}", "--wait")

        def start() -> None:
            _run(account, *control, f"--options={options}", "start")

        def stop() -> None:
            _run(account, *control, "--mode=immediate", "stop")

        start()
        try:
            yield Server(port, start, stop)
        finally:
            stop()
    finally:
        shutil.rmtree(place)


def _programs() -> Path | None:
    found = shutil.which("pg_ctl")
    if found:
        return Path(found).resolve().parent
    # Debian keeps them off the path, in a folder of their version.
    versions = Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")
    newest = max(versions, key=lambda path: float(path.parts[-3]), default=None)
    return newest.parent if newest else None


def _account() -> str | None:
    """The server refuses to run as root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _run(account: str | None, *command: str | Path) -> None:
    as_account: Any = {}
    if account:
        as_account = {"user": account, "group": pwd.getpwnam(account).pw_gid, "extra_groups": ()}
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        **as_account,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
