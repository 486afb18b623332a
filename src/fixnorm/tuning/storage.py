"""Where a study is kept: an Optuna database, and the one process that may write into it."""

from __future__ import annotations

import os
import sqlite3
import time
import urllib.parse
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import optuna
import sqlalchemy
from sqlalchemy.engine import make_url

from fixnorm.system import kind_of, regular
from fixnorm.system.extras import needs
from fixnorm.system.lock import InUse, held
from fixnorm.tuning.place import database_of

__all__ = ["Storage"]

_PATIENCE = 5.0
"""Seconds for the server to notice that the last owner's connection is gone."""
_KEEPALIVE = {"idle": 30, "interval": 10, "count": 3}
"""Seconds, and tries, after which the server lets go of an owner whose machine is gone."""
_LOOK = 2.0
"""Seconds between two looks at the connection."""


@dataclass(frozen=True)
class Storage:
    """A database by its URL; SQLite and PostgreSQL are known."""

    url: str
    path: Path | None = None
    """Of SQLite: the file, as it is called."""

    @classmethod
    def in_folder(cls, folder: Path) -> Storage:
        """The SQLite file of a study's folder, whatever characters its name has."""
        path = database_of(folder)
        # As a URI: in a plain path Optuna takes braces, and the URL question marks, for its own.
        name = "file:" + urllib.parse.quote(os.fsencode(path.absolute()))
        url = sqlalchemy.URL.create("sqlite", database=name, query={"uri": "true"})
        return cls(url.render_as_string(hide_password=False), path)

    @classmethod
    def parse(cls, url: str) -> Storage:
        """By URL, with the driver that is installed by the ``postgres`` extra."""
        try:
            parsed = make_url(url)
        except (sqlalchemy.exc.ArgumentError, ValueError):
            # Not shown: there may be a password in it.
            raise ValueError(
                "--storage must be a URL such as postgresql://USER@HOST/DB but is none"
            ) from None
        dialect = parsed.get_backend_name()
        if dialect not in ("sqlite", "postgresql"):
            raise ValueError(f"--storage must be sqlite or postgresql but got {dialect}")
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        return cls(parsed.render_as_string(hide_password=False))

    @property
    def shown(self) -> str:
        """For people: without the password."""
        if self.file is not None:
            return self.file.as_posix()
        return make_url(self.url).set(query={}).render_as_string()  # a query may hold it, too

    @property
    def elsewhere(self) -> str:
        """What to give for another place."""
        return "another --study" if self.file is None else "another --out"

    @property
    def file(self) -> Path | None:
        """Of SQLite: the file."""
        if self.path is not None:
            return self.path
        parsed = make_url(self.url)
        if parsed.get_backend_name() != "sqlite":
            return None
        return Path(parsed.database or "")

    def check(self) -> None:
        """Refuse a file that is something else; changes nothing."""
        self.whole()

    def whole(self) -> bool:
        """Whether a study can be read, looked at without writing; refuses what is none.

        A driver killed in its first moment leaves an empty file, or one without all tables.
        """
        if self.file is None:
            return True
        if not regular(self.file):
            if not os.path.lexists(self.file):
                return False
            raise ValueError(
                f"{self.file} is {kind_of(self.file)}, not a database: give another --out"
            )
        try:
            tables = _tables(self.file)
        except sqlite3.Error as error:
            raise ValueError(
                f"{self.file} cannot be read as a study ({error}): give another --out"
            ) from None
        for table, columns in tables.items():
            known = OPTUNA.get(table)
            if known is None or not known <= columns:
                raise ValueError(
                    f"{self.file} is another program's database, its table {table!r:.60} is not"
                    " Optuna's: give another --out"
                )
        return tables.keys() == OPTUNA.keys()

    @contextmanager
    def opened(self) -> Iterator[optuna.storages.RDBStorage]:
        """Open the database, making its tables where they are missing."""
        self.check()
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", sqlalchemy.exc.SAWarning)
                storage = optuna.storages.RDBStorage(self.url)
        except ModuleNotFoundError as error:
            raise ValueError(needs("PostgreSQL", str(error.name), "postgres")) from None
        except ImportError:
            raise ValueError(needs("PostgreSQL", "psycopg", "postgres")) from None
        except Exception as error:  # whatever a database of another version leads Optuna to
            raise ValueError(f"cannot open {self.shown}: {_first_line(error)}") from None
        try:
            yield storage
        except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            raise OSError(
                f"lost {self.shown}: {_first_line(error)}; the same command goes on"
            ) from error
        finally:
            storage.remove_session()
            storage.engine.dispose()

    @contextmanager
    def owned(self, study: str) -> Iterator[Callable[[], None]]:
        """Be the one driver of a study; raises :class:`InUse` where there is another.

        Yields what makes sure that it still is: to be called now and then.
        """
        if self.file is not None:
            with held(self.file.with_name(f"{self.file.name}.lock")):
                yield lambda: None  # the kernel keeps it as long as this process lives
            return
        lock = _ServerLock(self.url, study)
        try:
            lock.take()
            yield lock.keep
        finally:
            lock.close()


class _ServerLock:
    """A study's lock on a PostgreSQL server: it lives as long as one connection does.

    Held by one driver; whoever loses it takes it again before anything else, or stops."""

    def __init__(self, url: str, study: str) -> None:
        self._study = study
        self._engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
        self._connection: sqlalchemy.Connection | None = None
        self._looked = 0.0

    def take(self) -> None:
        """Become the owner; raises :class:`InUse` where there is another."""
        self._connection = connection = self._engine.connect()
        for setting, value in _KEEPALIVE.items():
            connection.execute(sqlalchemy.text(f"SET tcp_keepalives_{setting} = {value}"))
        ask = sqlalchemy.text("SELECT pg_try_advisory_lock(hashtext(:name))")
        deadline = time.monotonic() + _PATIENCE
        while not connection.execute(ask, {"name": f"fixnorm {self._study}"}).scalar():
            if time.monotonic() > deadline:
                raise InUse("another driver")
            time.sleep(0.1)
        self._looked = time.monotonic()

    def keep(self) -> None:
        """Make sure that it is held: where the connection was lost, take it again."""
        if time.monotonic() - self._looked < _LOOK:
            return
        try:
            assert self._connection is not None
            self._connection.execute(sqlalchemy.text("SELECT 1"))
        except sqlalchemy.exc.SQLAlchemyError:
            self._let_go()
            self.take()
        self._looked = time.monotonic()

    def close(self) -> None:
        self._let_go()
        self._engine.dispose()

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()  # what is broken cannot be closed politely
            self._connection.close()
            self._connection = None


OPTUNA = {
    "studies": {"study_id", "study_name"},
    "version_info": {"version_info_id", "schema_version", "library_version"},
    "study_directions": {"study_id", "direction"},
    "study_user_attributes": {"study_id", "key", "value_json"},
    "study_system_attributes": {"study_id", "key", "value_json"},
    "trials": {"trial_id", "number", "study_id", "state"},
    "trial_user_attributes": {"trial_id", "key", "value_json"},
    "trial_system_attributes": {"trial_id", "key", "value_json"},
    "trial_params": {"trial_id", "param_name", "param_value", "distribution_json"},
    "trial_values": {"trial_id", "objective", "value"},
    "trial_intermediate_values": {"trial_id", "step", "intermediate_value"},
    "trial_heartbeats": {"trial_id", "heartbeat"},
    "alembic_version": {"version_num"},
}
"""The tables of Optuna's databases, with columns by which they are known."""


def _tables(file: Path) -> dict[str, set[str]]:
    """The tables of an SQLite file with their columns."""
    # A driver killed while it wrote leaves a journal, which only one who may write can take back.
    journal = file.with_name(f"{file.name}-journal")
    mode = "rw" if regular(journal) and journal.stat().st_size else "ro"
    name = urllib.parse.quote(os.fsencode(file.absolute()))
    database = sqlite3.connect(f"file:{name}?mode={mode}", uri=True)
    try:
        found = database.execute(
            "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c"
            " WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        ).fetchall()
    finally:
        database.close()
    tables: dict[str, set[str]] = {}
    for table, column in found:
        tables.setdefault(str(table), set()).add(str(column))
    return tables


def _first_line(error: Exception) -> str:
    """The database's own word, of which Optuna and SQLAlchemy make many."""
    cause: BaseException = error
    if isinstance(error, optuna.exceptions.StorageInternalError) and error.__cause__ is not None:
        cause = error.__cause__
    cause = getattr(cause, "orig", None) or cause
    return str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
