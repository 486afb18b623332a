"""A training, a search and records to be spoilt, the commands that read them, and the promise."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fixnorm
from helpers.promise import LONGEST, Answer, check_line

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "results" / "reproduce").glob("*.json"))
TRAIN = ["train", "digits", "--out", "run", "--no-tensorboard"]
TRAIN += [f"--set={pair}" for pair in ("epochs=1", "warmup_epochs=0", "model=resnet8-s2")]
TRAIN += ["--set=train_per_class=26", "--set=val_per_class=2", "--set=image_size=8"]
TRAIN += ["--set=batch_size=64", "--checkpoint-steps", "1", "--keep", "9"]


def curve(lr: float, alpha: float, steps: int) -> float:
    return 50 + lr - lr * lr / 3 - alpha / 50


def search(out: Path) -> object:
    alphas = (0.5, 1.0)
    return fixnorm.tune(
        curve, steps=1, out=out, progress=False, splits=2, fractions=(1.0,), alphas=alphas
    )


def point(lr: float, alpha: float, fraction: float, seed: int) -> dict[str, Any]:
    score = curve(lr, alpha, 1) + seed
    return {
        "lr": lr,
        "alpha": alpha,
        "fraction": fraction,
        "seed": seed,
        "accuracy": score,
        "curve": [score / 2, score],
        "largest_scale": 3.0,
    }


LANDSCAPE = {
    "name": "small",
    "points": [
        point(lr, alpha, fraction, seed)
        for fraction, alphas in ((0.2, (0.5,)), (1.0, (0.5, 1.0)))
        for alpha in alphas
        for lr in (0.5, 1.0)
        for seed in (0, 1)
    ],
}


def kept(answer: Answer, *, chatty: bool = False) -> None:
    """The promise of a command whose input may be wrong."""
    assert answer.crash is None, answer
    assert "Traceback" not in answer.err, answer
    if answer.code == 0:
        return
    assert answer.code == 2, answer
    if not chatty:
        check_line(answer)
    assert answer.changes == [], f"changed {answer.changes}: {answer}"


def clear(place: Path) -> None:
    """Take away what a command that was content has made."""
    shutil.rmtree(place / "out", ignore_errors=True)
    (place / "out.safetensors").unlink(missing_ok=True)


def one_line(call: Callable[[], object]) -> str | None:
    """The words of a refusal, as short as the promise has them; none where all was well."""
    try:
        call()
    except ValueError as error:
        said = str(error)
    else:
        return None
    assert said
    assert "\n" not in said
    assert len(said) < LONGEST
    return said


REPRODUCE = {
    record.name: ["reproduce", record.stem, "--from", record.name, "--out", "out"]
    for record in RECORDS
}
REPORT = ["report", "study", "--out", "out"]
REPLAY = ["replay", "landscape.json", "--replays", "1", "--budget", "2", "--out", "out"]
REPLAY += ["--strategies", "paper,random,successive-halving"]
COMMANDS: dict[str, list[list[str]]] = {
    **{name: [arguments] for name, arguments in REPRODUCE.items()},
    "landscape.json": [REPLAY],
    "run/recipe.json": [["export", "run", "--out", "out.safetensors"], TRAIN],
    "run/result.json": [TRAIN],
    "run/classes.json": [["export", "run", "--out", "out.safetensors"]],
}
"""JSON files, and the commands that read them."""
