"""A table of words: on a terminal, in Markdown, in a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fixnorm.report.markup import Markup, join, tag, with_t_max

__all__ = ["TextTable", "wide_console"]

_WIDE = 120


@dataclass(frozen=True)
class TextTable:
    """Words in rows; ``notes`` say what the columns do not."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    words: int = 2
    """Columns of words, on the left; the others are numbers."""

    def rich(self) -> Table:
        """For a terminal."""
        table = Table(box=None, pad_edge=False, title=escape(self.title), title_justify="left")
        for place, column in enumerate(self.columns):
            table.add_column(escape(column), justify="left" if place < self.words else "right")
        for row in self.rows:
            table.add_row(*map(escape, row))
        return table

    def print(self, console: Console) -> None:
        """The table, and its notes below it."""
        console.print(self.rich())
        for note in self.notes:
            console.print(note, style="dim", markup=False)

    def markdown(self, *, title: bool = True) -> str:
        """For a file."""
        ruler = ["---" if place < self.words else "---:" for place in range(len(self.columns))]
        lines = [
            *([f"## {self.title}", ""] if title else []),
            _line(self.columns),
            _line(ruler),
            *map(_line, self.rows),
            *(["", *(f"- {note}" for note in self.notes)] if self.notes else []),
        ]
        return "\n".join(lines) + "\n"

    def html(self) -> Markup:
        """For a page."""
        head = tag(
            "tr",
            *(
                tag("th", with_t_max(name), class_=self._class(k))
                for k, name in enumerate(self.columns)
            ),
        )
        rows = [
            tag("tr", *(tag("td", cell, class_=self._class(k)) for k, cell in enumerate(row)))
            for row in self.rows
        ]
        notes = [tag("li", with_t_max(note), class_="info") for note in self.notes]
        return join(
            tag("h3", self.title),
            tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll"),
            tag("ul", *notes, class_="notes") if notes else None,
        )

    def _class(self, place: int) -> str | None:
        return None if place < self.words else "number"


def wide_console() -> Console:
    """For tables on stdout: a pipe has no width, so nothing is cut there."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
