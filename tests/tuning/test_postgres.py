"""A search whose study is kept by a real PostgreSQL server."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from fixnorm.system.lock import InUse
from fixnorm.tuning.plan import PAPER
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.study import Study, read_studies
from fixnorm.tuning.trial import StudyRecord
from helpers.postgres import PASSWORD, Server, server
from helpers.runs import Life, until
from helpers.searches import KEYS, gone, start, trainings, until_it_trains

__all__ = ["server"]  # a fixture, which pytest looks up by name


def kept(url: str, out: Path) -> StudyRecord:
    (record,) = read_studies(Storage.parse(url), out)
    return record


def ended(driver: Life) -> tuple[int, str]:
    """The exit code, and what was said, in which a password never is."""
    code, said = driver.wait(), driver.said()
    assert PASSWORD not in said
    return code, said


def only_line(said: str) -> str:
    (line,) = said.splitlines()
    return line


def results(out: Path) -> dict[str, float]:
    """The accuracy of each run that is over, by its key."""
    return {
        path.parent.name: json.loads(path.read_text())["accuracy"]
        for path in out.glob("*/*/result.json")
    }


@pytest.mark.slow
def test_a_whole_search_whose_driver_is_killed(server: Server, tmp_path: Path) -> None:
    url, out = server.new("whole"), tmp_path / "study"

    driver = start(out, "--storage", url)
    assert until(lambda: results(out) and trainings(out), driver), driver.said()
    driver.kill()
    assert gone(out), "a training outlived its driver"
    assert len(kept(url, out).trials) < len(KEYS), "the search was over before the kill"
    assert "running" in {trial.state for trial in kept(url, out).trials}

    driver = start(out, "--storage", url)
    until_it_trains(driver, out)
    driver.send(signal.SIGSTOP)  # it owns the study for as long as the next one asks
    code, said = ended(start(out, "--storage", url))
    assert code == 2, said
    assert only_line(said) == (
        f"fixnorm: study 'digits-fixnorm-paper' in {Storage.parse(url).shown} belongs to process"
        f" {driver.pid} on {socket.gethostname()}: wait for it or give another --study"
    )
    driver.send(signal.SIGCONT)
    code, said = ended(driver)
    assert code == 0, said

    record = kept(url, out)
    assert sorted(trial.key for trial in record.trials) == KEYS
    assert {trial.state for trial in record.trials} <= {"trained", "free"}
    trained = {t.key: t.accuracy for t in record.trials if t.state == "trained"}
    assert trained == results(out)
    best = json.loads((out / "result.json").read_text())
    assert best["accuracy"] == max(trained.values())
    assert best["trials"] == len(trained)
    assert not (out / "study.db").exists()
    assert [p for p in out.rglob("*") if p.is_file() and PASSWORD.encode() in p.read_bytes()] == []


@pytest.mark.slow
def test_a_server_that_is_lost_and_comes_back(server: Server, tmp_path: Path) -> None:
    url, out = server.new("lost"), tmp_path / "study"
    options = ("--storage", url, "--fractions", "1", "--alphas", "1")
    driver = start(out, *options)
    until_it_trains(driver, out)
    server.drop_connections("lost")  # alone this is mended on the way
    server.tell("ALTER DATABASE lost ALLOW_CONNECTIONS false")
    server.drop_connections("lost")
    code, said = ended(driver)
    assert code == 2, said
    (line,) = [line for line in said.splitlines() if line.startswith("fixnorm: ")]
    assert re.match(r"fixnorm: lost postgresql\S+/lost: .+; the same command goes on$", line)
    assert "Traceback" not in said
    assert gone(out)

    server.tell("ALTER DATABASE lost ALLOW_CONNECTIONS true")
    code, said = ended(start(out, *options))
    assert code == 0, said
    trained = {trial.key: trial.accuracy for trial in kept(url, out).trials}
    assert trained == results(out)
    assert sorted(trained) == ["lr1-0-seed0", "lr1-1-seed0"]


@pytest.mark.slow
def test_one_database_for_many_folders(server: Server, tmp_path: Path) -> None:
    """A study knows its folder: another search does not take its trainings for its own."""
    storage = Storage.parse(server.new("many"))

    def owned(name: str, folder: str) -> None:
        with Study.owned(
            storage,
            name,
            settings={"method": "fixnorm", "strategy": "paper", "space": asdict(PAPER)},
            distributions={},
            folder=tmp_path / folder / "fixnorm-paper",
        ):
            pass

    owned("first", "a")
    owned("first", "a")
    with pytest.raises(
        ValueError, match=r"settings: folder \(.*/a/fixnorm-paper.* there, .*/b/fixnorm"
    ):
        owned("first", "b")
    owned("second", "b")
    assert [s.name for s in read_studies(storage, tmp_path / "a")] == ["first"]
    assert [s.name for s in read_studies(storage, tmp_path / "b")] == ["second"]


@pytest.mark.slow
def test_a_wrong_password(server: Server, tmp_path: Path) -> None:
    url, out = server.url("postgres", password=f"not-{PASSWORD}"), tmp_path / "study"
    code, said = ended(start(out, "--storage", url))
    assert code == 2, said
    assert re.fullmatch(
        r"fixnorm: cannot open postgresql\S+tuner:\*\*\*@\S+:"
        r" .* password authentication failed for user \"tuner\"",
        only_line(said),
    )
    assert not out.exists()


@pytest.mark.slow
def test_no_server(tmp_path: Path) -> None:
    out = tmp_path / "study"
    url = Server(port=1).url("postgres")
    code, said = ended(start(out, "--storage", url))
    assert code == 2, said
    assert re.fullmatch(
        r"fixnorm: cannot open postgresql\S+tuner:\*\*\*@127.0.0.1:1/postgres: .*refused",
        only_line(said),
    )
    assert not out.exists()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql//tuner:{PASSWORD}@there/db",
        f"postgresql://tuner:{PASSWORD}@there:port/db",
        f"mysql://tuner:{PASSWORD}@there/db",
    ],
)
def test_a_url_that_is_none_of_ours_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="--storage must be ") as refusal:
        Storage.parse(url)
    assert PASSWORD not in str(refusal.value)


@pytest.mark.parametrize(
    "url", [f"postgresql://tuner:{PASSWORD}@there/db", f"postgresql://there/db?password={PASSWORD}"]
)
def test_the_password_is_not_shown(url: str) -> None:
    shown = Storage.parse(url).shown
    assert "there/db" in shown
    assert PASSWORD not in shown


def test_a_lock_whose_connection_is_ended_is_taken_again_or_lost(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fixnorm.tuning.storage._LOOK", 0.0)
    monkeypatch.setattr("fixnorm.tuning.storage._PATIENCE", 0.3)
    storage = Storage.parse(server.new("locks"))
    end = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
    with storage.owned("study") as keep:
        server.tell(end)
        keep()
        with pytest.raises(InUse), storage.owned("study"):
            pass
        server.tell(end)
        with storage.owned("study"), pytest.raises(InUse):
            keep()


@pytest.mark.slow
def test_the_server_asks_whether_the_owner_is_still_there(server: Server) -> None:
    """An owner whose machine is gone loses the study in a minute, not in two hours."""
    url = server.new("keepalive")
    assert not any(seconds <= 30 for seconds in keepalives(server.port))
    with Storage.parse(url).owned("study"):
        deadline = time.monotonic() + 600
        # As long as something is on its way it need not ask.
        while not any(seconds <= 30 for seconds in keepalives(server.port)):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def keepalives(port: int) -> list[float]:
    """Seconds until the kernel asks the other side of each connection to a local port."""
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, _, timer, *_ = line.split()
        kind, _, ticks = timer.partition(":")
        established, keepalive = "01", "02"
        if int(local.partition(":")[2], 16) == port and (state, kind) == (established, keepalive):
            found.append(int(ticks, 16) / 100)
    return found
