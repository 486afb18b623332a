"""Every option of every command with what people, scripts and slips of the pen may give it.

Options are taken from the commands themselves: a new one is covered the day it is made.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest
import typer

from fixnorm import recipes
from fixnorm.commands import app as application
from fixnorm.commands import tune
from fixnorm.commands.options import Where
from fixnorm.tuning import estimate
from helpers.promise import answered, check_line, refused

pytestmark = pytest.mark.slow
MILLION = "9" * 1_000_000
NO_NUMBERS = {
    "wrong type": "abc",
    "empty": "",
    "nan": "nan",
    "infinite": "inf",
    "negative": "-7",
    "huge": "1e300",
    "huge and whole": "1" + "0" * 30,
    "a million digits": MILLION,
    "unicode": "é漢\u202e",
    "a path": "../../x",
    "markup": "[/x]",
    "control": "\x1b[31m7",
}
"""No option takes any of these for a number."""
TEXTS = NO_NUMBERS | {
    "a very long name": "x" * 5000,
    "the root": "/",
    "nowhere": "/nowhere/at/all",
    "a device": "/dev/null",
    "a home": "~",
    "blank": "   ",
    "a question": "what?",
    "a percent": "a%20b",
    "a dash": "-",
}
"""What stands for a text or a path: refused, or taken at its word."""
LANDSCAPE = next((Path(__file__).parents[2] / "results/landscapes/fixnorm").glob("*.json"))
BASE = {
    "audit": ["audit", "resnet8"],
    "recipes": ["recipes"],
    "train": ["train", "digits"],
    "tune": ["tune", "digits"],
    "report": ["report", "study"],
    "replay": ["replay", str(LANDSCAPE), "--strategies", "paper"],
    "reproduce": ["reproduce", "fig2", "--dry-run"],
    "export": ["export", "run"],
    "fold": ["fold", "in.pt", "out.pt"],
}
"""A command line of each that is right, but for what is then added."""
RIVAL = ("--method", "bo-weight-decay")
WITH = {
    "margin": ("--plan", "unimodal"),
    **dict.fromkeys(("budget", "sampler", "weight_decay_min", "weight_decay_max"), RIVAL),
    **dict.fromkeys(("gpus_per_trial", "cpus_per_trial", "address"), ("--engine", "ray")),
}
"""Without these the option would be refused for another reason."""
COMMANDS: dict[str, Any] = dict(typer.main.get_command(application.app).commands)  # type: ignore[attr-defined]
TYPES = {c.name: get_type_hints(c.callback) for c in application.app.registered_commands}


def options(*kinds: type) -> list[tuple[str, Any]]:
    """Options whose values are of some kinds, with their commands."""
    return [
        (name, parameter)
        for name, command in COMMANDS.items()
        for parameter in command.params
        if parameter.opts[0].startswith("--")
        and parameter.name in TYPES[name]
        and kinds_of(TYPES[name][parameter.name]) & set(kinds)
    ]


def kinds_of(annotation: Any) -> set[Any]:
    """``Path | None`` is of the kind Path, ``list[str]`` is its own."""
    return {annotation, *get_args(annotation)}


NUMERIC = options(int, float)
NAMED = options(str, Path, list[str])
LISTS = {"fractions", "alphas"}


def line(command: str, parameter: Any, value: str) -> list[str]:
    """A command line with the option; what is given twice is given as the test wants it."""
    base = list(BASE[command])
    if parameter.opts[0] in base:
        place = base.index(parameter.opts[0])
        del base[place : place + 2]
    return [*base, *WITH.get(parameter.name, ()), f"{parameter.opts[0]}={value}"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own, in which nothing is trained, measured or replayed."""

    def pretend(*_: object, **__: object) -> dict[str, Any]:
        raise typer.Exit(0)

    monkeypatch.delenv("FIXNORM_DATA", raising=False)
    monkeypatch.setattr(estimate, "_MEASURED", 0.0)
    monkeypatch.setattr("fixnorm.training.train", pretend)
    monkeypatch.setattr("fixnorm.evidence.replay.replays.replay_all", pretend)
    monkeypatch.setattr("fixnorm.commands.reproduce.announce", pretend)
    for name in ("searched", "centred"):
        monkeypatch.setattr(tune, name, pretend)
    idle = SimpleNamespace(stop=lambda: None)
    monkeypatch.setattr(Where, "new_engine", lambda *_: idle)
    return tmp_path


def kept(arguments: list[str], folder: Path) -> int | None:
    """The exit code of a command that may do as it is told, or refuse by the rules."""
    answer = answered(arguments, folder)
    assert answer.crash is None, f"ended in an exception: {answer}"
    assert answer.code in (0, 2), f"exit code {answer.code}: {answer}"
    if answer.code == 2:
        check_line(answer)
        assert answer.changes == [], f"changed {answer.changes}: {answer}"
    return answer.code


def test_the_base_of_each_command_is_right(place: Path) -> None:
    """Else every case below would be refused for another reason."""
    assert BASE.keys() == COMMANDS.keys()
    for name in ("train", "tune", "replay", "reproduce"):
        assert kept(BASE[name], place) == 0, name
    for option, others in WITH.items():
        (command, parameter) = next((n, p) for n, p in (*NUMERIC, *NAMED) if p.name == option)
        right = {"sampler": "tpe", "address": "auto", "weight_decay_min": "1e-5"}.get(option, "1")
        right = "0.001" if option == "weight_decay_max" else right
        assert kept(line(command, parameter, right), place) == 0, (option, others)


def ids(case: tuple[str, Any]) -> str:
    return f"{case[0]} {case[1].opts[0]}"


@pytest.mark.parametrize("case", NUMERIC, ids=ids)
def test_no_number(place: Path, case: tuple[str, Any]) -> None:
    for value in NO_NUMBERS.values():
        refused(line(*case, value), place)


@pytest.mark.parametrize("name", sorted(LISTS))
def test_no_list_of_numbers(place: Path, name: str) -> None:
    parameter = next(p for _, p in NAMED if p.name == name)
    for value in (*NO_NUMBERS.values(), "1,,nan", "1,2,1e300", ",".join(["1"] * 5000)):
        refused(line("tune", parameter, value), place)


@pytest.mark.parametrize("case", NAMED, ids=ids)
def test_texts_and_paths(place: Path, case: tuple[str, Any]) -> None:
    for value in TEXTS.values():
        kept(line(*case, value), place)


@pytest.mark.parametrize("case", options(bool), ids=ids)
def test_a_flag_takes_no_value(place: Path, case: tuple[str, Any]) -> None:
    for value in TEXTS.values():
        refused(line(*case, value), place)


@pytest.mark.parametrize("name", [name for name in BASE if name != "recipes"])
def test_arguments(place: Path, name: str) -> None:
    rest = BASE[name][2:]
    for value in TEXTS.values():
        if value == "/" and name == "replay":
            continue  # it may well look through a whole disk
        if value and not value.startswith("-"):
            kept([name, value, *rest], place)


@pytest.mark.parametrize("name", BASE)
def test_an_option_that_is_none(place: Path, name: str) -> None:
    for words in (["--nosuch"], ["--nosuch=1"], ["--=1"], ["---out"], ["x", "y", "z", "--é"]):
        refused([*BASE[name], *words], place)


@pytest.mark.parametrize("name", ["", "trian", "--nosuch", "[/x]", "\x1b[31m", "../train"])
def test_a_command_that_is_none(place: Path, name: str) -> None:
    refused([name], place)


SETTINGS = sorted(type(recipes.get("digits")).model_fields)


@pytest.mark.parametrize("field", SETTINGS)
def test_every_setting(place: Path, field: str) -> None:
    number = type(recipes.get("digits")).model_fields[field].annotation in (int, float)
    for value in TEXTS.values():
        words = ["train", "digits", "--set", f"{field}={value}"]
        refused(words, place) if number else kept(words, place)


TOGETHER = [
    "tune --budget 9",
    "tune --sampler gp",
    "tune --weight-decay-min 1e-5",
    "tune --plan paper --margin 1",
    "tune --address auto",
    "tune --gpus-per-trial 1",
    "tune --cpus-per-trial 1",
    "tune --engine ray --workers 2",
    "tune --method bo-weight-decay --alphas 1,2",
    "tune --method bo-weight-decay --plan unimodal",
    "tune --method bo-weight-decay --splits 3",
    "tune --method bo-weight-decay --fractions 1",
    "tune --method bo-weight-decay --margin 1",
    "tune --method bo-weight-decay --seeds 2",
    "tune --method bo-weight-decay --from-weight-decay 1 1e-4",
    "tune --from-weight-decay 1 1e-4 --lr-min 1",
    "tune --set lr=5",
    "tune --set alpha=5",
    "tune --set weight_decay=5",
    "tune --set method=wn-fc",
    "tune --set epochs=2 --set epochs=3",
    "train digits --set epochs=2 --set epochs=2",
    "train digits --method wn-fc --set method=fixnorm",
    "reproduce fig2 --from x.json --dry-run",
    "reproduce fig2 --from x.json --scale paper",
    "reproduce fig2 --from x.json --workers 2",
    "reproduce fig2 --address auto",
    "report a b --storage sqlite:///x.db",
]


@pytest.mark.parametrize("words", TOGETHER)
def test_options_that_mean_nothing_together_are_both_named(place: Path, words: str) -> None:
    said = refused(words.split(), place)
    named = [word for word in words.split() if word.startswith("--") and word != "--set"]
    assert any(name in said for name in named) or words.count("--set"), said
