"""What is kept of an experiment: its numbers, and all that they depend on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fixnorm.reproduce.training import Found, Training
from fixnorm.training.checkpoint import write_atomically
from fixnorm.training.result import commit, versions

__all__ = ["read_record", "record_of", "write_record"]


def record_of(
    name: str, scale: str, outcome: Mapping[str, Any], used: Mapping[Training, Found]
) -> dict[str, Any]:
    """The content of an experiment's JSON file."""
    found = used.values()
    return {
        "experiment": name,
        "scale": scale,
        "command": f"fixnorm reproduce {name} --scale {scale} --data DATA",
        "commit": commit(),
        "trained_at": sorted({one.commit for one in found if one.commit is not None}),
        "versions": versions(),
        "hardware": sorted({one.device for one in found}),
        "recipes": sorted({training.base for training in used}),
        "trainings": len(used),
        "cost": round(sum(training.cost for training in used), 3),
        "seconds": round(sum(one.seconds for one in found)),
        "outcome": outcome,
    }


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """As JSON, a line for each entry: short enough for a repository."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
    with write_atomically(path) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read_record(path: Path) -> dict[str, Any]:
    """Of :func:`write_record`; a file of another kind is refused in one line."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"no record at {path}: give the JSON file of fixnorm reproduce") from None
    except (UnicodeDecodeError, ValueError):
        raise ValueError(f"{path} is no record of fixnorm reproduce: it is not JSON") from None
    if not isinstance(content, dict) or not {"experiment", "outcome"} <= content.keys():
        raise ValueError(f"{path} is no record of fixnorm reproduce: it has no experiment")
    return content
