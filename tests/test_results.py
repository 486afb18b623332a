"""The stored numbers: complete, small, and what the pages say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from fixnorm.evidence.experiments import DRAWN
from fixnorm.evidence.landscapes import Landscape
from fixnorm.evidence.record import exhibit_of, read_record

ROOT = Path(__file__).parent.parent
RECORDS = sorted((ROOT / "results" / "reproduce").glob("*.json"))
LANDSCAPES = sorted((ROOT / "results" / "landscapes").glob("*/*.json"))


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """The script that fills the pages."""
    spec = importlib.util.spec_from_file_location(
        "results_page", ROOT / "benchmarks" / "results_page.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))  # as where a script is run from
        spec.loader.exec_module(module)
    return module


def test_every_experiment_is_stored() -> None:
    assert {path.stem for path in RECORDS} == DRAWN.keys()


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_says_where_its_numbers_come_from(path: Path) -> None:
    record = read_record(path)

    assert record.experiment == path.stem
    assert record.trained_at
    assert record.hardware
    assert {"torch", "fixnorm", "python"} <= record.versions.keys()
    assert record.command.startswith(f"fixnorm reproduce {path.stem} --scale small")
    assert path.stat().st_size < 1_000_000
    shown = exhibit_of(record)
    assert shown.claims
    for drawing in shown.drawings:
        assert (ROOT / "docs" / "results" / f"{drawing.name}.png").exists()


@pytest.mark.parametrize(
    "page",
    [
        "docs/results.md",
        "docs/auto-lr.md",
        "docs/at-size.md",
        "docs/beyond-cnns.md",
        "README.md",
    ],
)
def test_pages_say_what_is_stored(page: str, pages: ModuleType) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"<!-- ([\w-]+) -->\n(.*?)<!-- /\1 -->", text, re.DOTALL)

    assert blocks
    assert all(content.strip() for _, content in blocks)
    assert pages.filled(text, pages.makers()) == text, "run python benchmarks/results_page.py"


def test_the_page_has_every_experiment() -> None:
    text = (ROOT / "docs" / "results.md").read_text()
    assert all(f"<!-- {name} -->" in text for name in (*DRAWN, "claims", "replay", "provenance"))


def test_a_block_without_numbers_is_refused(pages: ModuleType) -> None:
    with pytest.raises(ValueError, match="no numbers for the block 'fig9'"):
        pages.filled("<!-- fig9 -->\n<!-- /fig9 -->", {})
    made = pages.filled("a\n<!-- b -->\nold\n<!-- /b -->\nc", {"b": lambda: "new\n"})
    assert made == "a\n<!-- b -->\nnew\n<!-- /b -->\nc"


def test_landscapes_are_whole_and_small() -> None:
    found = {(one.name, one.axis): one for one in map(Landscape.read, LANDSCAPES)}

    assert len(found) == 4
    assert len({name for name, _ in found}) == 2
    for landscape in found.values():
        assert len(landscape.lrs) >= 8
        assert len(landscape.levels) >= 6
        assert len(landscape.seeds) >= 2
        assert landscape.epochs >= 10  # a curve for each training
    assert all(path.stat().st_size <= 1_000_000 for path in LANDSCAPES)
