"""``fixnorm recipes`` as a user meets it."""

from __future__ import annotations

import contextlib
import io
import json
import re
from typing import Any

import pytest

from fixnorm import recipes
from fixnorm.commands import run
from fixnorm.commands.recipes import _short


def call(*arguments: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as stopped:
        run(["recipes", *arguments])
    assert stopped.value.code == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(call("--json"))}


def test_json_lists_every_recipe_in_order(rows: dict[str, dict[str, Any]]) -> None:
    assert tuple(rows) == recipes.names()


def test_json_of_a_row_of_the_paper(rows: dict[str, dict[str, Any]]) -> None:
    assert rows["efficientnet-b1-350"] == {
        "name": "efficientnet-b1-350",
        "group": "Table 2",
        "model": "efficientnet-b1",
        "data": "imagefolder",
        "task": "classification",
        "metric": "accuracy",
        "image_size": [240, 240],
        "params": 7_794_184,
        "macs": 685_522_832,
        "macs_with_head": 685_522_832 + 1280 * 1000,
        "length": 350,
        "unit": "epochs",
        "batch_size": 1024,
        "lr": 0.8,
        "alpha": 8.0,
        "reference_lr": 0.2,
        "reference_weight_decay": 4e-5,
        "paper_score": 79.52,
        "paper_reference_score": 79.20,
    }


def test_json_of_a_small_one(rows: dict[str, dict[str, Any]]) -> None:
    row = rows["digits"]
    assert row["params"] == 77_754
    # 64 positions of the stem and the first stage, 16 of the second, 4 of the third
    stem, first = 64 * 9 * 16, 64 * 2 * 9 * 16 * 16
    second = 16 * (9 * 16 * 32 + 9 * 32 * 32 + 16 * 32)
    third = 4 * (9 * 32 * 64 + 9 * 64 * 64 + 32 * 64)
    assert row["macs"] == stem + first + second + third
    assert row["macs_with_head"] == row["macs"] + 64 * 10
    assert row["paper_score"] is None


def test_table_shows_the_paper_beside_the_cost() -> None:
    lines = call().splitlines()
    assert " ".join(lines[0].split()) == "recipe model params MACs T_max lr alpha paper ref."
    found = {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line.strip()}
    assert found["resnet50d-star-350"] == "resnet50d-star 28.1M 4.33G 350 ep 1.1 1 81.27 80.80"
    assert found["resnet50-100"] == "resnet50 25.6M 4.09G 100 ep 1.4 0.5 – –"
    assert set(recipes.names()) <= found.keys()
    assert max(map(len, lines)) <= 104


def test_a_narrow_terminal_goes_without_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in call().splitlines()]
    assert " ".join(lines[0].split()) == "recipe params MACs T_max lr alpha paper ref."
    assert "mobilenetv2-x1.54-star-350" in {line.partition(" ")[0] for line in lines}
    assert "…" not in "".join(lines)


def test_a_wrong_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(["recipes", "--jsn"])
    out, err = capsys.readouterr()
    assert stopped.value.code == 2
    assert out == ""
    assert err.startswith("fixnorm: No such option: --jsn")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (640, "640"),
        (77_754, "77.8k"),
        (299_494_272, "299M"),
        (25_576_264, "25.6M"),
        (4_326_776_832, "4.33G"),
    ],
)
def test_counts_have_three_figures(count: int, text: str) -> None:
    assert _short(count) == text
