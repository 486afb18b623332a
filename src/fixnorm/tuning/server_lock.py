"""A study's lock on a PostgreSQL server: it lives as long as one connection does."""

from __future__ import annotations

import time

import sqlalchemy

from fixnorm.system.lock import InUse

__all__ = ["ServerLock"]

_PATIENCE = 5.0
"""Seconds for the server to notice that the last owner's connection is gone."""
_KEEPALIVE = {"idle": 30, "interval": 10, "count": 3}
"""Seconds, and tries, after which the server lets go of an owner whose machine is gone."""
_LOOK = 2.0
"""Seconds between two looks at the connection."""


class ServerLock:
    """Held by one driver; whoever loses it takes it again before anything else, or stops."""

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
        """Give it back."""
        self._let_go()
        self._engine.dispose()

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()  # what is broken cannot be closed politely
            self._connection.close()
            self._connection = None
