"""The page as a browser shows it, opened from disk; and that the check itself can fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from fixnorm.report import write_report
from helpers import chromium
from helpers.records import auto_study, baseline_study, paper_study

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium.browser() is None, reason="needs Chromium: apt install chromium (or Chrome)"
    ),
]
SOUND = (
    '<link rel="icon" href="data:,"><figure id="one"><svg viewBox="0 0 100 100" width="200">'
    + '<path d="M0 0L100 100" stroke="black"/>' * 6
    + "</svg></figure>"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of three searches: all kinds of figures and states are in it."""
    out = tmp_path_factory.mktemp("report")
    studies = [
        paper_study(out / "a", name="paper"),
        paper_study(out / "b", name="seeds", seeds=3, lost=False),
        baseline_study(out / "c", name="baseline"),
        auto_study(out / "d", name="auto", seeds=2),
    ]
    return write_report(studies, out, command="fixnorm train cifar10-small --set lr=1.4")


EXPECTED = {
    "compare-comparison": 1,
    "study-1-paper-learning-rate": 2,
    "study-1-paper-alpha": 1,
    "study-1-paper-progress": 1,
    "study-1-paper-curves-lr-round-1": 5,
    "study-1-paper-curves-lr-round-2": 5,
    "study-1-paper-curves-alpha-round": 5,
    "study-2-seeds-learning-rate": 2,
    "study-2-seeds-alpha": 1,
    "study-2-seeds-progress": 1,
    "study-2-seeds-curves-lr-round-1": 5,
    "study-2-seeds-curves-lr-round-2": 5,
    "study-2-seeds-curves-alpha-round": 5,
    "study-3-baseline-points": 1,
    "study-3-baseline-progress": 1,
    "study-3-baseline-curves-points": 5,
    "study-4-auto-branches": 2,
    "study-4-auto-auto-lr": 2,
    "study-4-auto-alpha": 1,
    "study-4-auto-progress": 1,
    "study-4-auto-curves-trunk-and-branches": 5,
}


@pytest.mark.parametrize("width", [1280, 400])
def test_every_figure_is_there_and_the_console_is_silent(report: Path, width: int) -> None:
    seen = chromium.inspect(report, width=width)
    assert seen.problems(set(EXPECTED)) == []
    assert {name: len(panels) for name, panels in seen.figures.items()} == EXPECTED
    assert seen.overflow == 0


def test_tables_are_sorted_by_a_click(report: Path) -> None:
    script = """(() => {
      const table = document.querySelector("#study-1-paper table.trials");
      const heads = [...table.tHead.rows[0].cells];
      const place = heads.findIndex((head) => head.textContent === "accuracy (%)");
      const column = () => [...table.tBodies[0].rows].map((row) => row.cells[place].textContent);
      const sorted = [];
      for (let click = 0; click < 2; click++) {
        heads[place].querySelector("button").click();
        sorted.push(column());
      }
      return sorted;
    })()"""
    up, down = chromium.evaluate(report, script)
    numbers = [float(text) for text in up if text]
    assert len(up) == 15
    assert numbers == sorted(numbers)
    assert up[-2:] == down[-2:] == ["", ""]  # those without a number stay at the foot
    assert [float(text) for text in down if text] == numbers[::-1]


def test_dark_and_light(report: Path, tmp_path: Path) -> None:
    corners = []
    for dark in (False, True):
        png = chromium.screenshot(report, tmp_path / f"{dark}.png", 800, 400, dark=dark)
        picture = Image.open(png).convert("L")
        assert picture.size == (800, 400)
        corners.append(picture.getpixel((2, 2)))
    by_day, by_night = corners
    assert isinstance(by_day, int)
    assert isinstance(by_night, int)
    assert by_day > 200
    assert by_night < 60


def test_the_check_accepts_a_sound_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html>{SOUND}")
    assert chromium.inspect(page).problems({"one"}) == []


@pytest.mark.parametrize(
    ("spoiled", "expected"),
    [
        (SOUND + "<script>undefinedName()</script>", "ReferenceError"),
        (SOUND + "<script>console.error('oh')</script>", "console: error: oh"),
        (SOUND + "<script>console.warn('hm')</script>", "console: warning: hm"),
        (SOUND + "<script>setTimeout(() => { throw new Error('late') })</script>", "late"),
        (SOUND + '<img src="missing.png">', "missing.png"),
        (SOUND.replace('id="one"', 'id="two"'), "no figure one"),
        ('<figure id="one"></figure>', "figure one is empty"),
        (SOUND.replace('width="200"', 'width="0" height="0"'), "figure one has a panel"),
        (SOUND.replace("<path", "<g").replace("/></", "></g></"), "figure one has a panel"),
        (f"<div hidden>{SOUND}</div>", "figure one has a panel"),
        (SOUND.replace("L100 100", "Loops"), "console: error"),
    ],
)
def test_the_check_refuses_a_spoiled_page(tmp_path: Path, spoiled: str, expected: str) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html>{spoiled}")
    found = chromium.inspect(page).problems({"one"})
    assert any(expected in line for line in found), found
