"""What a replay leaves behind: numbers, a figure, a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna

from fixnorm.replay.figure import regret_figure
from fixnorm.replay.summary import SettingResult
from fixnorm.replay.table import table_of
from fixnorm.replay.work import Options
from fixnorm.report.drawing import png
from fixnorm.training.checkpoint import write_atomically
from fixnorm.training.result import commit, versions

__all__ = ["content", "write_replay"]


def content(results: Sequence[SettingResult], options: Options) -> dict[str, Any]:
    """All numbers, for programs."""
    return {
        "options": asdict(options),
        "versions": {**versions(), "optuna": optuna.__version__},
        "commit": commit(),
        "settings": [result.to_dict() for result in results],
    }


def write_replay(results: Sequence[SettingResult], options: Options, out: Path) -> list[Path]:
    """Write ``replay.json``, ``regret.png`` and ``table.md`` into a folder; return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / name for name in ("replay.json", "regret.png", "table.md")]
    tables = [table_of(result, replays=options.replays).markdown() for result in results]
    written = (
        f"{json.dumps(content(results, options))}\n".encode(),
        png(regret_figure(results)),
        "\n".join(tables).encode(),
    )
    for path, data in zip(paths, written, strict=True):
        with write_atomically(path) as file:
            file.write(data)
    return paths
