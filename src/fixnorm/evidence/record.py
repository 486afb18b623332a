"""What is kept of an experiment: its numbers, and all that they depend on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fixnorm.evidence.training import Found, Training
from fixnorm.system import write_atomically
from fixnorm.system.versions import commit, versions
from fixnorm.training.bounded import Count, Name, Real
from fixnorm.training.checked import Part, read_checked

__all__ = ["Record", "is_record", "read_record", "record_of", "write_record"]


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
    outcome: dict[str, Any]


def record_of(
    name: str, scale: str, outcome: Mapping[str, Any], used: Mapping[Training, Found]
) -> Record:
    """Of an experiment that is over."""
    found = used.values()
    return Record(
        experiment=name,
        scale=scale,
        command=f"fixnorm reproduce {name} --scale {scale} --data DATA",
        commit=commit(),
        trained_at=tuple(sorted({one.commit for one in found if one.commit is not None})),
        versions=versions(),
        hardware=tuple(sorted({one.device for one in found})),
        recipes=tuple(sorted({training.base for training in used})),
        trainings=len(used),
        cost=round(sum(training.cost for training in used), 3),
        seconds=round(sum(one.seconds for one in found)),
        outcome=dict(outcome),
    )


def write_record(path: Path, record: Record) -> None:
    """As JSON, a line for each entry: short enough for a repository."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in dict(record).items()]
    with write_atomically(path) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read_record(path: Path) -> Record:
    """Of :func:`write_record`; a file of another kind is refused in one line."""
    return read_checked(
        path,
        Record,
        what="a record of fixnorm reproduce",
        advice="give the JSON file of fixnorm reproduce",
    )


def is_record(path: Path) -> bool:
    """Whether the file is one of ours."""
    try:
        read_record(path)
    except ValueError:
        return False
    return True
