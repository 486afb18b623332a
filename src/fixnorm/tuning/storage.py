"""Where a study is kept: an Optuna database, and the one process that may write into it."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import optuna
import sqlalchemy
from sqlalchemy.engine import make_url

from fixnorm.training.lock import held
from fixnorm.tuning.server_lock import ServerLock

__all__ = ["Storage"]


@dataclass(frozen=True)
class Storage:
    """A database by its URL; SQLite and PostgreSQL are known."""

    url: str

    @classmethod
    def in_folder(cls, folder: Path) -> Storage:
        """The SQLite file of a study's folder."""
        return cls(f"sqlite:///{folder / 'study.db'}")

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
        parsed = make_url(self.url)
        if parsed.get_backend_name() != "sqlite":
            return None
        return Path(parsed.database or "")

    def exists(self) -> bool:
        """Whether there is something to read."""
        return self.file is None or self.file.exists()

    def check(self) -> None:
        """Refuse a file that is something else; changes nothing."""
        if self.file is None or not self.file.exists():
            return
        if self.file.is_dir():
            raise ValueError(f"{self.file} is a folder, not a database: give another --out")
        try:
            with sqlite3.connect(f"{self.file.resolve().as_uri()}?mode=ro", uri=True) as database:
                rows = database.execute("SELECT name FROM sqlite_master").fetchall()
            database.close()
        except sqlite3.Error as error:
            raise ValueError(
                f"{self.file} cannot be read as a study ({error}): give another --out"
            ) from None
        tables = {name for (name,) in rows}
        # A driver killed in its first moment leaves an empty file, or one without all tables.
        if tables and not tables & {"studies", "version_info", "alembic_version"}:
            raise ValueError(f"{self.file} is another program's database: give another --out")

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
            raise ValueError(
                f"PostgreSQL needs {error.name}: pip install 'fixnorm[postgres]'"
            ) from None
        except ImportError:
            raise ValueError("PostgreSQL needs psycopg: pip install 'fixnorm[postgres]'") from None
        except (sqlalchemy.exc.SQLAlchemyError, RuntimeError) as error:
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
        lock = ServerLock(self.url, study)
        try:
            lock.take()
            yield lock.keep
        finally:
            lock.close()


def _first_line(error: Exception) -> str:
    """The database's own word, of which Optuna and SQLAlchemy make many."""
    cause: BaseException = error
    if isinstance(error, optuna.exceptions.StorageInternalError) and error.__cause__ is not None:
        cause = error.__cause__
    cause = getattr(cause, "orig", None) or cause
    return str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
