"""Files that may be spoilt, and drawings that need not be rendered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fixnorm.report import drawing
from helpers.mutations import MINUTES
from helpers.promise import answered
from helpers.spoilt import LANDSCAPE, RECORDS, TRAIN, search


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training with its checkpoints, a search, a recording and records."""
    place = tmp_path_factory.mktemp("originals")
    done = answered(TRAIN, place)
    assert done.code == 0, done
    assert len(list((place / "run" / "checkpoints").iterdir())) > 1
    search(place / "study")
    (place / "landscape.json").write_text(json.dumps(LANDSCAPE))
    for record in RECORDS:
        shutil.copy(record, place)
    return place


@pytest.fixture
def place(originals: Path, tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    copied = tmp_path / "place"
    shutil.copytree(originals, copied)
    return copied


@pytest.fixture
def drawn_not_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels draw themselves; only the long run also makes pictures of them."""
    if MINUTES:
        return

    def drawn(panels: drawing.Drawing) -> bytes:
        for panel in panels.panels:
            panel.axes(drawing.Figure())
        return b"a picture"

    for module in ("evidence.record", "evidence.replay.output", "report.write"):
        monkeypatch.setattr(f"fixnorm.{module}.png", drawn)
    monkeypatch.setattr("fixnorm.report.html.svg", lambda panel, prefix: "<svg></svg>")
