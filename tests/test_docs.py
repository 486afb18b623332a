"""What the README and the pages show is so: commands parse, messages are ours, costs counted."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import typer

from fixnorm import recipes
from fixnorm.commands.app import app
from fixnorm.reproduce.cost import Counter
from fixnorm.tuning.estimate import training_images

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def shown_commands(text: str) -> list[str]:
    """``fixnorm …`` in shell blocks, by torchrun or not, and in the text; without comments."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    found = [
        match[1]
        for line in lines
        if (match := re.search(r"(?:^|^\$ |^exec |/bin/|-m |&& )fixnorm (.*)$", line))
    ]
    inline = re.findall(r"`fixnorm ([^`]+)`", text)  # a command named, or given in whole
    return [*found, *(command for command in inline if " " in command)]


def parsed(command: str) -> tuple[str, dict[str, object]]:
    """The command's name and arguments, by the command line's own parser; nothing is run."""
    words = shlex.split(command, comments=True)
    if words[0].startswith("--"):  # an option of all commands
        words = words[1:]
    group = typer.main.get_command(app)
    return words[0], group.commands[words[0]].make_context(words[0], words[1:]).params


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_parse(page: Path) -> None:
    for command in shown_commands(page.read_text()):
        name, arguments = parsed(command)
        if name in ("train", "tune") and arguments["recipe"] != "RECIPE":
            recipes.get(str(arguments["recipe"]))


def test_a_wrong_command_is_noticed() -> None:
    text = "```sh\nfixnorm train digits --epochs 3  # an option it has not\n```"
    with pytest.raises(Exception, match="No such option: --epochs"):
        parsed(*shown_commands(text))
    (split,) = shown_commands("```sh\ntorchrun -m fixnorm train \\\n  digits\n```")
    assert split.split() == ["train", "digits"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_that_commands_name_are_there(page: Path) -> None:
    for script in re.findall(r"python (\w+/\w+\.py)", page.read_text()):
        assert (ROOT / script).exists()


@cache
def strings_of_the_source() -> list[str]:
    """Every string of the package, with … for what is filled in."""
    found = []
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Expr):  # a docstring is not said to anybody
                node.value = ast.Constant(None)
            elif isinstance(node, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "…" for v in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def said(message: str) -> bool:
    """Whether the package can say this; … stands for anything."""
    pattern = re.compile(".*".join(map(re.escape, message.strip("… ").split("…"))), re.DOTALL)
    return any(pattern.search(string) for string in strings_of_the_source())


def messages() -> list[str]:
    text = (ROOT / "docs/troubleshooting.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    about_errors = [part for part in sections if not part.startswith("It trains")]
    return re.findall(r"\*\*(.+?)\*\*", "\n".join(about_errors))


def test_messages_explained_are_those_of_the_source() -> None:
    assert len(messages()) > 40
    assert [message for message in messages() if not said(message)] == []
    assert not said("the model has no … wheels")


@pytest.mark.parametrize("name", ["mobilenetv2-150", "resnet50d-120"])
def test_gpu_hours_are_as_counted(name: str) -> None:
    text = (ROOT / "docs/scale.md").read_text()
    row = re.search(rf"^\| `{name}` \|.*\| ([\d.,]+) \| ([\d.,]+) \|$", text, re.MULTILINE)
    assert row is not None
    recipe = recipes.get(name)
    operations = training_images(recipe, None) * Counter(measure=False).operations(recipe)
    hours = operations / 40e12 / 3600
    assert float(row[1]) == pytest.approx(hours, abs=0.06)
    assert float(row[2].replace(",", "")) == pytest.approx(11 * hours, abs=0.6)
