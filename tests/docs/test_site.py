"""The site builds without a warning, and a browser shows every page of it without the net."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import chromium
from helpers.pages import ROOT

pytest.importorskip("mkdocs")
pytestmark = pytest.mark.slow


def build(out: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]  # --quiet would not count them
    return subprocess.run(
        [*command, "-f", config, "-d", out],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(out)
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert {page.stem for page in site.glob("*.html")} == pages | {"404"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a page](nowhere.md)", "nowhere.md"),
        ("[a file](../src/fixnorm/nothing.py)", "which the repository has not"),
        ('<img src="https://example.org/a.png">', "loads from the net"),
        ("::: fixnorm.hook.nothing", "fixnorm.hook.nothing"),
    ],
)
def test_what_is_wrong_fails_the_build(tmp_path: Path, text: str, complaint: str) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# A page\n\n{text}\n")
    (docs / "hooks.py").write_text((ROOT / "docs/hooks.py").read_text())
    (docs / "site.css").write_text("")
    whole = (ROOT / "mkdocs.yml").read_text().replace("paths: [src]", f"paths: ['{ROOT}/src']")
    before, _, rest = whole.partition("nav:\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(before + rest[rest.index("markdown_extensions:") :])
    done = build(tmp_path / "site", config)
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr


@pytest.mark.skipif(
    chromium.browser() is None, reason="needs Chromium: apt install chromium (or Chrome)"
)
@pytest.mark.parametrize("name", sorted(page.stem for page in (ROOT / "docs").glob("*.md")))
def test_a_browser_shows_it(site: Path, name: str) -> None:
    seen = chromium.inspect(site / f"{name}.html", width=1280, then=(420,))
    assert seen.console == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:"))] == []
    assert seen.overflow <= 0
