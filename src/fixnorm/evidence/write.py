"""What an experiment leaves behind: numbers, figures, tables and a page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from fixnorm.evidence.experiments import EXPERIMENTS
from fixnorm.evidence.landscapes import is_landscape
from fixnorm.evidence.record import Record, is_record, write_record
from fixnorm.evidence.shown import SHOW, Claim, Shown
from fixnorm.report.drawing import png
from fixnorm.report.html import render
from fixnorm.system import check_files
from fixnorm.system.atomic import write_atomically

__all__ = [
    "check_places",
    "claims_markdown",
    "tables_markdown",
    "write_landscapes",
    "write_shown",
]

_ORIGIN = ("command", "commit", "trained_at", "versions", "hardware")


def write_landscapes(record: Record, out: Path) -> list[Path]:
    """Each recording as a file that ``fixnorm replay`` reads."""
    paths = []
    for landscape in record.outcome["landscapes"]:
        path = out / "landscapes" / landscape["method"] / f"{landscape['name']}.json"
        origin = {k: getattr(record, k) for k in _ORIGIN}
        check_files(path.parent, (), sign=path.name, ours=is_landscape)
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as file:
            file.write(json.dumps({**origin, **landscape}).encode())
        paths.append(path)
    return paths


def write_shown(record: Record, out: Path) -> list[Path]:
    """Write NAME.json, NAME.html, NAME.md and the PNGs into a folder; return their paths.

    All of it is made before any of it is written; files of others are not written over.
    """
    name = record.experiment
    shown = SHOW[name](record.outcome)
    texts = {
        f"{name}.md": f"# {EXPERIMENTS[name].title}\n\n{_markdown(shown)}",
        f"{name}.html": page(record, shown),
    }
    contents = {file: text.encode() for file, text in texts.items()}
    contents |= {f"{drawing.name}.png": png(drawing) for drawing in shown.drawings}
    check_files(out, contents, sign=f"{name}.json", ours=is_record)
    out.mkdir(parents=True, exist_ok=True)
    write_record(out / f"{name}.json", record)
    for file, content in contents.items():
        with write_atomically(out / file) as opened:
            opened.write(content)
    return [out / f"{name}.json", *(out / file for file in contents)]


def check_places(names: Iterable[str], out: Path) -> None:
    """Refuse a folder where files of others have the names of these experiments' files."""
    for name in names:
        if name in SHOW:
            check_files(out, (f"{name}.md", f"{name}.html"), sign=f"{name}.json", ours=is_record)


def page(record: Record, shown: Shown) -> str:
    """All of it, for a browser."""
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    commits = ", ".join(commit[:10] for commit in record.trained_at) or "unknown"
    return render(
        "experiment.html.j2",
        name=record.experiment,
        title=EXPERIMENTS[record.experiment].title,
        about=about(record),
        shown=shown,
        command=record.command,
        provenance=(f"Trained at commit {commits} on {', '.join(record.hardware)}; {versions}."),
    )


def about(record: Record) -> str:
    """Where the numbers come from, in a line."""
    minutes = record.seconds / 60
    return (
        f"{record.trainings} trainings ({record.cost:g} T_max, {minutes:.0f} minutes of"
        f" training) at {record.scale} scale; recipes: {', '.join(record.recipes)}"
    )


def _markdown(shown: Shown) -> str:
    return f"{claims_markdown(shown.claims)}\n{tables_markdown(shown)}"


def claims_markdown(claims: tuple[Claim, ...]) -> str:
    """As a table."""
    lines = ["| claim | verdict | measured |", "|---|---|---|"]
    lines += [f"| {c.text} | **{c.verdict}** | {c.measured} |" for c in claims]
    return "\n".join(lines) + "\n"


def tables_markdown(shown: Shown) -> str:
    """All tables, one after another."""
    return "\n".join(table.markdown() for table in shown.tables)
