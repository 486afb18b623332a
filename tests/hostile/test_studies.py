"""Studies that are damaged, changed, or of another program: refused in one line, and left alone."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from fixnorm.system.lock import held
from helpers.mutations import damaged_bytes, damaged_json, fuzz
from helpers.promise import answered, listing, refused
from helpers.spoilt import REPORT, clear, kept, one_line, search

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("drawn_not_rendered")]


ROWS = {
    "study_user_attributes": "value_json",
    "trial_user_attributes": "value_json",
    "trial_params": "distribution_json",
}


def test_damaged_study_files(originals: Path, place: Path) -> None:
    clean = (originals / "study" / "study.db").read_bytes()

    def check(damage: bytes) -> None:
        (place / "study" / "study.db").write_bytes(damage)
        kept(answered(REPORT, place))
        clear(place)

    fuzz(damaged_bytes(clean), check)


@pytest.mark.parametrize("table", ROWS)
def test_changed_studies(table: str, originals: Path, place: Path) -> None:
    """What a study says, in words of another program or of a later version."""
    path, column = place / "study" / "study.db", ROWS[table]
    clean = (originals / "study" / "study.db").read_bytes()
    with sqlite3.connect(path) as database:
        rows = database.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
    database.close()
    values = [(rowid, json.loads(text)) for rowid, text in rows]

    def check(change: tuple[int, bytes]) -> None:
        rowid, text = change
        path.write_bytes(clean)
        with sqlite3.connect(path) as database:
            sql = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
            database.execute(sql, (text.decode(), rowid))
        database.close()
        kept(answered(REPORT, place))
        clear(place)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            before = listing(place)
            if one_line(lambda: search(Path("study"))) is not None:
                assert before.keys() == listing(place).keys()

    def changed(row: tuple[int, Any]) -> st.SearchStrategy[tuple[int, bytes]]:
        return st.tuples(st.just(row[0]), damaged_json(row[1]))

    fuzz(st.sampled_from(values).flatmap(changed), check)


STUDIES: dict[str, str] = {
    "another direction": "UPDATE study_directions SET direction = 'MINIMIZE'",
    "a value less": "DELETE FROM trial_values WHERE trial_id = 1",
    "a slot less": "DELETE FROM trial_user_attributes WHERE trial_id = 1 AND key = 'slot'",
    "a trial less": "DELETE FROM trials WHERE trial_id = 1",
    "another lr": "UPDATE trial_params SET param_value = 1.0 WHERE trial_id = 1",
    "another winner": "UPDATE trial_values SET value = 99.0 WHERE trial_id = 2",
    "no number": "UPDATE trial_values SET value = NULL, value_type = 'INF_POS' WHERE trial_id = 1",
    "no settings": "DELETE FROM study_user_attributes",
    "a newer schema": "UPDATE alembic_version SET version_num = 'v99.0.0.a'",
    "no schema at all": "DROP TABLE trials",
    "tables of another program": "CREATE TABLE customers (id INTEGER)",
    "other columns": "ALTER TABLE studies RENAME COLUMN study_name TO title",
    "a state of its own": "UPDATE trials SET state = 'PRUNED' WHERE trial_id = 1",
}


@pytest.mark.parametrize("sql", STUDIES.values(), ids=list(STUDIES))
def test_a_study_that_is_not_as_we_left_it_is_refused(sql: str, place: Path) -> None:
    path = place / "study" / "study.db"
    with sqlite3.connect(path) as database:
        database.execute(sql)
    database.close()
    refused(REPORT, place)


@pytest.mark.parametrize("tables", ["customers (id)", "studies (id, title)", "alembic_version (v)"])
@pytest.mark.parametrize("command", ["tune", "report"])
def test_a_database_of_another_program_is_left_as_it_is(
    tables: str, command: str, tmp_path: Path
) -> None:
    (tmp_path / "study").mkdir()
    with sqlite3.connect(tmp_path / "study" / "study.db") as database:
        database.execute(f"CREATE TABLE {tables}")
    database.close()
    arguments = ["report", "study"] if command == "report" else ["tune", "--out", "study"]
    assert "another program's database" in refused(arguments, tmp_path)


def _hold(lock: Path, taken: Any, done: Any) -> None:
    with held(lock):
        taken.set()
        done.wait(60)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_driver_makes_no_database_beside_one_that_is_about_to(tmp_path: Path) -> None:
    """Of several that begin at once one wins; the others say who it is."""
    processes = multiprocessing.get_context("fork")
    taken, done = processes.Event(), processes.Event()
    lock = tmp_path / "study.db.lock"
    winner = processes.Process(target=_hold, args=(lock, taken, done))
    winner.start()
    try:
        assert taken.wait(60)
        (tmp_path / "study.db").touch()  # SQLite's first moment
        with pytest.raises(ValueError, match=rf"belongs to process {winner.pid} on "):
            search(tmp_path)
        assert (tmp_path / "study.db").stat().st_size == 0
    finally:
        done.set()
        winner.join(60)
    search(tmp_path)
    assert (tmp_path / "study.db").stat().st_size
