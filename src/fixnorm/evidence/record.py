"""What is kept of an experiment: a record of its numbers, and what is made of it for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fixnorm.evidence.experiment import Claim, Exhibit, Experiment
from fixnorm.evidence.experiments import DRAWN
from fixnorm.evidence.experiments.fig4 import Recordings
from fixnorm.evidence.landscapes import Landscape
from fixnorm.evidence.trainings import Found, Training
from fixnorm.report.drawing import png
from fixnorm.report.html import render
from fixnorm.system import check_files
from fixnorm.system.files import write_files
from fixnorm.system.versions import commit, versions
from fixnorm.training.bounded import Count, Name, Real
from fixnorm.training.checked import Part, can_read, read_checked

__all__ = [
    "Record",
    "about",
    "check_places",
    "exhibit_of",
    "read_record",
    "record_of",
    "write_exhibit",
    "write_landscapes",
]

_ORIGIN = ("command", "commit", "trained_at", "versions", "hardware")


class Record(Part):
    """The content of an experiment's JSON file."""

    experiment: Name
    scale: Name
    command: Name
    commit: Name | None
    trained_at: tuple[Name, ...]
    versions: dict[str, str]
    hardware: tuple[Name, ...]
    recipes: tuple[Name, ...]
    trainings: Count
    cost: Annotated[Real, Field(ge=0)]
    seconds: Annotated[Real, Field(ge=0)]
    outcome: dict[str, object]
    """The experiment's own fields; its class checks them."""


def record_of(name: str, scale: str, outcome: Experiment, used: Mapping[Training, Found]) -> Record:
    """Of an experiment that is over."""
    found = used.values()
    recorded = " --recorded LANDSCAPES" if any(one.recorded for one in found) else ""
    return Record(
        experiment=name,
        scale=scale,
        command=f"fixnorm reproduce {name} --scale {scale} --data DATA{recorded}",
        commit=commit(),
        trained_at=tuple(sorted({at for one in found for at in one.commits})),
        versions=versions(),
        hardware=tuple(sorted({one.device for one in found})),
        recipes=tuple(sorted({training.base for training in used})),
        trainings=len(used),
        cost=round(sum(training.cost for training in used), 3),
        seconds=round(sum(one.seconds for one in found)),
        outcome=outcome.content(),
    )


def read_record(path: Path) -> Record:
    """Of :func:`write_exhibit`; a file of another kind is refused in one line."""
    return read_checked(
        path,
        Record,
        what="a record of fixnorm reproduce",
        advice="give the JSON file of fixnorm reproduce",
    )


def exhibit_of(record: Record) -> Exhibit:
    """What the experiment shows; a :class:`ValueError` names the place that is wrong."""
    return DRAWN[record.experiment].of(record.outcome).show()


def check_places(names: Iterable[str], out: Path) -> None:
    """Refuse a folder where files of others have the names of these experiments' files."""
    for name in names:
        if name in DRAWN:
            files = (f"{name}.md", f"{name}.html")
            check_files(out, files, sign=f"{name}.json", ours=can_read(read_record))


def write_landscapes(record: Record, out: Path) -> list[Path]:
    """Each recording as a file that ``fixnorm replay`` reads."""
    paths = []
    origin = {name: getattr(record, name) for name in _ORIGIN}
    for grid in Recordings.of(record.outcome).landscapes:
        text = json.dumps(origin | grid.model_dump(exclude_unset=True))
        folder, name = out / "landscapes" / grid.method, f"{grid.name}.json"
        paths += write_files(folder, {name: text.encode()}, ours=can_read(Landscape.read))
    return paths


def write_exhibit(record: Record, out: Path) -> list[Path]:
    """Write NAME.json, NAME.html, NAME.md and the PNGs into a folder; return their paths.

    All of it is made before any of it is written; files of others are not written over.
    """
    name, exhibit = record.experiment, exhibit_of(record)
    tables = "\n".join(table.markdown() for table in exhibit.tables)
    text = f"# {DRAWN[name].title}\n\n{_claims_markdown(exhibit.claims)}\n{tables}"
    contents = {
        f"{name}.json": _lines(record),
        f"{name}.md": text.encode(),
        f"{name}.html": _page(record, exhibit).encode(),
        **{f"{drawing.name}.png": png(drawing) for drawing in exhibit.drawings},
    }
    return write_files(out, contents, ours=can_read(read_record))


def about(record: Record) -> str:
    """Where the numbers come from, in a line."""
    minutes = record.seconds / 60
    return (
        f"{record.trainings} trainings ({record.cost:g} T_max, {minutes:.0f} minutes of"
        f" training) at {record.scale} scale; recipes: {', '.join(record.recipes)}"
    )


def _lines(record: Record) -> bytes:
    """As JSON, a line for each entry: short enough for a repository."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in dict(record).items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _claims_markdown(claims: tuple[Claim, ...]) -> str:
    lines = ["| claim | verdict | measured |", "|---|---|---|"]
    lines += [f"| {c.text} | **{c.verdict}** | {c.measured} |" for c in claims]
    return "\n".join(lines) + "\n"


def _page(record: Record, exhibit: Exhibit) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    commits = ", ".join(commit[:10] for commit in record.trained_at) or "unknown"
    return render(
        "experiment.html.j2",
        name=record.experiment,
        title=DRAWN[record.experiment].title,
        about=about(record),
        exhibit=exhibit,
        command=record.command,
        origin=f"Trained at commit {commits} on {', '.join(record.hardware)}; {versions}.",
    )
