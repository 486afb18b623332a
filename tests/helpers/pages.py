"""The README and the pages of the docs, and what they show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of these languages."""
    pattern = rf"^```(?:{'|'.join(languages)})\n(.*?)^```$"
    return re.findall(pattern, page.read_text(), re.MULTILINE | re.DOTALL)


def added(diff: str) -> list[str]:
    """The lines that a diff adds."""
    return [line[1:] for line in diff.splitlines() if line.startswith("+")]


def commands(shell: list[str], text: str = "") -> list[list[str]]:
    """``fixnorm …`` of shell blocks, by torchrun or not, and in the text; words, no comments."""
    lines = "\n".join(shell).replace("\\\n", " ").splitlines()
    found = [
        match[1]
        for line in lines
        if (match := re.search(r"(?:^|^\$ |^exec |/bin/|-m |&& )fixnorm (.*)$", line))
    ]
    inline = re.findall(r"`fixnorm ([^`]+)`", text)  # a command named, or given in whole
    return [
        shlex.split(command, comments=True)
        for command in [*found, *(command for command in inline if " " in command)]
    ]


def commands_of(page: Path) -> list[list[str]]:
    """All that a page shows."""
    return commands(blocks(page, "sh", "console"), page.read_text())
