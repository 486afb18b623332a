"""What a replay leaves behind: numbers, a figure, a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna

from fixnorm.evidence.replay.figure import regret_figure
from fixnorm.evidence.replay.summary import SettingResult
from fixnorm.evidence.replay.table import table_of
from fixnorm.evidence.replay.work import Options
from fixnorm.report.drawing import png
from fixnorm.system import check_files, write_atomically
from fixnorm.system.versions import commit, versions
from fixnorm.training.checked import Part, read_checked

__all__ = ["check_place", "content", "write_replay"]


def content(results: Sequence[SettingResult], options: Options) -> dict[str, Any]:
    """All numbers, for programs."""
    return {
        "options": asdict(options),
        "versions": {**versions(), "optuna": optuna.__version__},
        "commit": commit(),
        "settings": [result.to_dict() for result in results],
    }


_FILES = ("replay.json", "regret.png", "table.md")


class _File(Part):
    options: dict[str, Any]
    versions: dict[str, str]
    settings: list[dict[str, Any]]


def check_place(out: Path) -> None:
    """Refuse a folder where files of others have our names."""
    sign, *others = _FILES
    check_files(out, others, sign=sign, ours=_is_replay)


def _is_replay(path: Path) -> bool:
    try:
        read_checked(path, _File, what="a replay", advice="")
    except ValueError:
        return False
    return True


def write_replay(results: Sequence[SettingResult], options: Options, out: Path) -> list[Path]:
    """Write ``replay.json``, ``regret.png`` and ``table.md`` into a folder; return their paths."""
    paths = [out / name for name in _FILES]
    tables = [table_of(result, replays=options.replays).markdown() for result in results]
    written = (
        f"{json.dumps(content(results, options))}\n".encode(),
        png(regret_figure(results)),
        "\n".join(tables).encode(),
    )
    check_place(out)
    out.mkdir(parents=True, exist_ok=True)
    for path, data in zip(paths, written, strict=True):
        with write_atomically(path) as file:
            file.write(data)
    return paths
