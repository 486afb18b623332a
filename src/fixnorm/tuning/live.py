"""What live views have in common: they speak on stderr and leave no trace of themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod

from rich.console import Console, RenderableType
from rich.live import Live

__all__ = ["LiveView"]


class LiveView(ABC):
    """A live view on a terminal; elsewhere messages alone."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._live: Live | None = None

    @abstractmethod
    def view(self) -> RenderableType:
        """How it looks now."""

    @property
    def shown(self) -> bool:
        """Whether anyone can see the view."""
        return self.console.is_terminal

    def start(self) -> None:
        """Show it, where it can be seen."""
        if self.shown:
            self._live = Live(
                get_renderable=self.view, console=self.console, refresh_per_second=4, transient=True
            )
            self._live.start()

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def message(self, text: str) -> None:
        """Print above the view."""
        self.console.print(text, markup=False, soft_wrap=True)
