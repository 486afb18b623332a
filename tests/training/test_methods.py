"""``fixnorm train digits`` by all four methods, and what a run leaves behind."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

import fixnorm
from fixnorm import recipes
from fixnorm.commands import run
from fixnorm.data import Data, open_data
from fixnorm.methods import MethodName
from fixnorm.norm import joint_norm
from fixnorm.training import Recipe, RunOptions, changed, train
from fixnorm.training.checkpoint import read
from fixnorm.training.distributed import World
from fixnorm.training.setup import Trainee, build
from fixnorm.training.tasks import recipe_from_dict

METHODS: tuple[MethodName, ...] = get_args(MethodName)
ALONE = World(rank=0, size=1, device=torch.device("cpu"))
STEPS = 1442 // 128
"""Of an epoch: the images that do not fill a batch are left out."""
COLUMNS = [
    "epoch",
    "step",
    "lr",
    "train_loss",
    "train_accuracy",
    "val_accuracy",
    "conv_norm",
    "head_scale",
    "cap",
    "mcbr_train",
    "mcbr_val",
    "effective_lr",
    "angular_update",
    "implied_decay",
]


@dataclass(frozen=True)
class Done:
    """A finished run."""

    folder: Path
    recipe: Recipe
    printed: str
    shown: str

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    @property
    def rows(self) -> list[dict[str, str]]:
        with (self.folder / "metrics.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    @property
    def weights(self) -> dict[str, Tensor]:
        return load_file(self.folder / "weights.safetensors")


def numbers(run: Done, column: str) -> list[float]:
    return [float(row[column]) for row in run.rows]


@pytest.fixture(scope="module", params=METHODS)
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The command as the README gives it."""
    torch.set_num_threads(1)  # this comes before the fixture that does so for every test
    out = tmp_path_factory.mktemp("runs") / "run"
    printed, shown = io.StringIO(), io.StringIO()
    arguments = ["train", "digits", "--method", request.param, "--out", str(out)]
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(shown),
        pytest.raises(SystemExit) as stopped,
    ):
        run(arguments)
    assert stopped.value.code == 0, shown.getvalue()
    recipe = recipes.get("digits", request.param)
    return Done(out, recipe, printed.getvalue(), shown.getvalue())


def digits(recipe: Recipe) -> Data:
    return open_data("digits", None, settings=recipe.data_settings(), seed=recipe.seed)


# -- the four methods ------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_method_learns_the_digits(done: Done) -> None:
    assert done.result["accuracy"] >= 97.0
    assert f"accuracy {done.result['accuracy']:.2f} %" in done.printed
    shown = re.findall(r"^epoch +(\d+)/(\d+) ", done.shown, re.MULTILINE)
    epochs = done.recipe.epochs
    assert shown == [(str(epoch), str(epochs)) for epoch in range(1, epochs + 1)]


@pytest.mark.slow
def test_the_result_says_all_that_the_number_depends_on(done: Done) -> None:
    recipe, result = done.recipe, done.result
    fixed = {
        "diverged": False,
        "method": recipe.method,
        "lr": recipe.lr,
        "alpha": recipe.alpha,
        "weight_decay": recipe.weight_decay,
        "epochs": recipe.epochs,
        "steps": recipe.epochs * STEPS,
        "share": 1.0,
        "seed": 0,
        "processes": 1,
        "recipe": recipe.to_dict(),
    }
    assert {key: result[key] for key in fixed} == fixed
    assert json.loads((done.folder / "recipe.json").read_text()) == recipe.to_dict()
    accuracies = numbers(done, "val_accuracy")
    assert result["accuracy"] == accuracies[-1]
    assert result["best_accuracy"] == max(accuracies)
    for accuracy in accuracies:  # percent of 355 images: a whole number of them
        assert accuracy * 3.55 == pytest.approx(round(accuracy * 3.55), abs=1e-9)
    assert result["images_per_second"] == pytest.approx(
        result["steps"] * 128 / result["seconds"], abs=0.1, rel=1e-3
    )
    assert result["versions"]["fixnorm"] == fixnorm.__version__
    assert result["versions"]["torch"] == torch.__version__.partition("+")[0]
    assert {"python", "torchvision", "timm", "numpy"} <= result["versions"].keys()
    assert result["device"]


@pytest.mark.slow
def test_the_result_names_the_commit_of_the_code(done: Done) -> None:
    found = subprocess.run(
        ["git", "-C", str(Path(fixnorm.__file__).parent), "rev-parse", "--verify", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.result["commit"] == (found.stdout.strip() or None)


@pytest.mark.slow
def test_the_norm_that_the_method_fixes_stays_and_no_other(done: Done) -> None:
    """Algorithm 1 fixes ‖W^Conv‖, the others ‖W^Conv+FC‖ (appendix); weight decay fixes nothing."""
    start = build(done.recipe, digits(done.recipe), ALONE)
    conv_norms = numbers(done, "conv_norm")
    first = joint_norm(start.conv).item()
    if done.recipe.method == "algorithm1":
        assert conv_norms == pytest.approx([first] * done.recipe.epochs, rel=1e-6)
        return
    assert abs(conv_norms[-1] / first - 1) > 0.01
    if done.recipe.method == "weight-decay":
        return
    fixed = {id(p) for p in start.optimizer.param_groups[0]["params"]}
    names = [name for name, p in start.model.named_parameters() if id(p) in fixed]
    assert "fc.weight" in names
    target = joint_norm([start.model.get_parameter(name) for name in names]).item()
    weights = done.weights
    assert joint_norm([weights[name] for name in names]).item() == pytest.approx(target, rel=1e-6)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_columns_of_metrics_csv(done: Done) -> None:
    assert list(done.rows[0]) == COLUMNS
    epochs, lr = done.recipe.epochs, done.recipe.lr
    assert numbers(done, "epoch") == list(range(1, epochs + 1))
    assert numbers(done, "step") == [STEPS * epoch for epoch in range(1, epochs + 1)]
    assert numbers(done, "lr")[:2] == pytest.approx([0.5 * lr, lr])  # two epochs of warm-up
    caps = [row["cap"] for row in done.rows]
    if done.recipe.method == "fixnorm":
        assert [float(cap) for cap in caps] == [math.sqrt(10)] * epochs  # α√C
    else:
        assert set(caps) == {""}
    decays = [row["implied_decay"] for row in done.rows]
    assert (set(decays) == {""}) == (done.recipe.method == "weight-decay")
    norms = numbers(done, "conv_norm")
    effective = [a / b**2 for a, b in zip(numbers(done, "lr"), norms, strict=True)]
    assert numbers(done, "effective_lr") == pytest.approx(effective)
    assert all(0 < angle < 1 for angle in numbers(done, "angular_update"))
    assert numbers(done, "train_loss")[-1] < numbers(done, "train_loss")[0]
    for kind in ("mcbr_train", "mcbr_val"):
        assert all(-1 <= risk <= 1 for risk in numbers(done, kind))
        assert done.result[kind] == numbers(done, kind)[-1] < -0.2  # away from the boundaries


@pytest.mark.slow
def test_the_head_scale_is_g_or_the_norm_of_a_plain_head(done: Done) -> None:
    weights, last = done.weights, numbers(done, "head_scale")[-1]
    if done.recipe.method in ("fixnorm", "wn-fc"):
        assert last == weights["fc.g"].item()
    else:
        assert "fc.g" not in weights
        assert last == pytest.approx(weights["fc.weight"].norm().item(), rel=1e-6)


@pytest.mark.slow
def test_tensorboard_has_every_curve(done: Done) -> None:
    events = EventAccumulator(str(done.folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    absent = {"cap": done.recipe.method != "fixnorm"}
    absent["implied_decay"] = done.recipe.method == "weight-decay"
    curves = [c for c in COLUMNS if c not in ("epoch", "step") and not absent.get(c, False)]
    assert set(events.Tags()["scalars"]) == {f"epoch/{name}" for name in curves}
    for name in curves:
        scalars = events.Scalars(f"epoch/{name}")
        assert [s.step for s in scalars] == numbers(done, "step")
        assert [s.value for s in scalars] == pytest.approx(numbers(done, name), rel=1e-6)


# -- the largest scale, and what it promises -------------------------------------------------------


def short(out: Path, *, keep: int = 2, **changes: Any) -> dict[str, Any]:
    """Some steps on 320 digits, five an epoch."""
    fields = {"epochs": 2, "warmup_epochs": 0, "train_per_class": 32, "batch_size": 64} | changes
    result = train(
        changed(recipes.get("digits"), **fields),
        data=None,
        out=out,
        options=RunOptions(checkpoint_steps=1, keep=keep, tensorboard=False),
    )
    assert json.loads((out / "result.json").read_text()) == result
    assert not (out / "tensorboard").exists()
    return result


@pytest.mark.slow
@pytest.mark.parametrize(("epochs", "the_start_is_largest"), [(2, True), (8, False)])
def test_the_largest_scale_is_the_largest_of_all_steps_and_of_the_start(
    tmp_path: Path, epochs: int, the_start_is_largest: bool
) -> None:
    """g falls in the first steps, while the head is wrong, and grows when it is right."""
    result = short(tmp_path / "run", keep=100, epochs=epochs, alpha=16.0)
    recipe = recipe_from_dict(result["recipe"])
    start = build(recipe, digits(recipe), ALONE).model.get_parameter("fc.g").item()
    saved = [read(path) for path in sorted((tmp_path / "run" / "checkpoints").glob("*.ckpt"))]
    last = load_file(tmp_path / "run" / "weights.safetensors")
    scales = [start, *(state["model"]["fc.g"].item() for state in saved), last["fc.g"].item()]
    assert len(saved) >= 5 * epochs - 1
    assert result["largest_scale"] == pytest.approx(max(scales) / math.sqrt(10), rel=1e-6)
    assert (max(scales) == start) == the_start_is_largest


def test_a_scale_counts_by_its_size_whatever_its_sign() -> None:
    model = torch.nn.Sequential(fixnorm.FixNormLinear(3, 4, alpha=1.0))
    with torch.no_grad():
        model[0].g.fill_(-3.0)
    parts: Any = dict.fromkeys(("passes", "optimizer", "handle", "scaler"))
    trainee = Trainee(model=model, forward=model, conv=[], heads=("0",), **parts)
    assert float(trainee.relative_scale()) == 1.5


def test_plain_heads_have_no_largest_scale(tmp_path: Path) -> None:
    result = short(tmp_path / "run", method="algorithm1")
    assert result["largest_scale"] is None
    assert short(tmp_path / "wn-fc", method="wn-fc")["largest_scale"] > 0


@pytest.mark.slow
def test_a_run_that_never_met_its_cap_is_the_run_of_every_larger_alpha(tmp_path: Path) -> None:
    results = {a: short(tmp_path / f"{a}", alpha=a) for a in (0.5, 4.0, 16.0)}
    weights = {a: load_file(tmp_path / f"{a}" / "weights.safetensors") for a in results}
    assert results[4.0]["largest_scale"] < 4.0
    assert results[4.0]["largest_scale"] == results[16.0]["largest_scale"]
    assert all(torch.equal(weights[4.0][name], weights[16.0][name]) for name in weights[4.0])
    assert results[0.5]["largest_scale"] > 0.5
    assert not torch.equal(weights[0.5]["fc.weight"], weights[4.0]["fc.weight"])
