"""The options of the loop, one by one."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import fixnorm
from fixnorm.commands import run
from fixnorm.groups import fixed_weights, is_fixed
from fixnorm.methods import MethodName
from fixnorm.models import features_and_logits
from fixnorm.norm import weight_norms
from fixnorm.training import changed, loop, train
from fixnorm.training.checkpoint import read
from fixnorm.training.distributed import World
from fixnorm.training.setup import Trainee, build
from fixnorm.training.tasks import recipe_from_dict
from fixnorm.training.view import ProgressView, View
from fixnorm.training.weights import rebuild
from helpers.processes import train_by_two
from helpers.small_nets import true_norm
from helpers.small_runs import (
    NO_BATCH_STATISTICS,
    accuracy,
    assert_close,
    digits,
    rows_of,
    small,
    trained,
    weights_of,
)
from helpers.twin import Twin

ALONE = World(rank=0, size=1, device=torch.device("cpu"))


# -- precision, memory layout, compilation ---------------------------------------------------------


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[nn.Module, Callable[..., None]], None]:
    """Calls a function with the (model, inputs, output) of every forward pass of the run."""

    def watch(hook: Callable[..., None]) -> None:
        def hooked(*args: Any) -> Trainee:
            trainee = build(*args)
            trainee.model.register_forward_hook(hook)
            return trainee

        monkeypatch.setattr(loop, "build", hooked)

    return watch


@pytest.mark.parametrize(
    ("precision", "dtype", "tolerance"),
    [("bf16", torch.bfloat16, 0.05), ("fp16", torch.float16, 0.01)],
)
def test_half_precision(
    tmp_path: Path, watched: Any, precision: str, dtype: torch.dtype, tolerance: float
) -> None:
    seen = set()
    recipe = small(method="weight-decay", lr=0.05, epochs=1)  # two steps
    trained(recipe, tmp_path / "fp32")
    watched(lambda model, inputs, output: seen.add(output.dtype))
    trained(changed(recipe, precision=precision), tmp_path / "half")
    assert seen == {dtype}  # training and evaluation
    full, half = weights_of(tmp_path / "fp32"), weights_of(tmp_path / "half")
    assert {t.dtype for t in half.values()} == {t.dtype for t in full.values()}
    assert not torch.equal(full["fc.weight"], half["fc.weight"])
    for name in full:
        difference = (full[name].double() - half[name].double()).norm()
        assert difference <= tolerance * full[name].double().norm().clamp(min=1), name


def test_fp16_scales_the_loss_and_bf16_does_not(tmp_path: Path) -> None:
    for precision in ("fp16", "bf16"):
        trained(small(precision=precision), tmp_path / precision)
    last = "checkpoints/step-000000005.ckpt"
    scaler = read(tmp_path / "fp16" / last)["scaler"]
    assert scaler["scale"] == 2.0**16
    assert scaler["_growth_tracker"] == 5  # no step was skipped
    assert read(tmp_path / "bf16" / last)["scaler"] == {}


def test_fp16_clips_the_gradient_and_not_its_multiple(tmp_path: Path) -> None:
    """One step of plain SGD from a clipped gradient is lr·clip long."""
    one_step = {"epochs": 1, "warmup_epochs": 0, "batch_size": 80, "momentum": 0.0}
    recipe = small(method="weight-decay", weight_decay=0.0, lr=0.5, clip=0.2, **one_step)
    start = build(recipe, digits(recipe), ALONE).model
    for precision in ("fp32", "fp16"):
        trained(changed(recipe, precision=precision), tmp_path / precision)
        end = weights_of(tmp_path / precision)
        moved = [end[name] - p.detach() for name, p in start.named_parameters()]
        assert true_norm(moved) == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("channels_last", [True, False])
def test_the_memory_layout_changes_nothing_but_rounding(
    tmp_path: Path, watched: Any, channels_last: bool
) -> None:
    seen = set()

    def look(model: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        (images,) = inputs
        weight = model.get_parameter("stages.1.0.conv1.weight")
        layout = {"memory_format": torch.channels_last}
        seen.add((weight.is_contiguous(**layout), weight.is_contiguous()))  # 3×3: never both
        assert images.is_contiguous(**layout) or not channels_last

    recipe = small(
        method="weight-decay", lr=0.05, epochs=1, warmup_epochs=0, channels_last=channels_last
    )
    watched(look)
    trained(recipe, tmp_path / "run")
    assert seen == {(channels_last, not channels_last)}
    assert_close(weights_of(tmp_path / "run"), Twin(recipe).model.state_dict(), 1e-4)


@pytest.mark.slow
def test_compiled_training_gives_the_same(tmp_path: Path) -> None:
    recipe = small(lr=0.1, epochs=2, drop=0.3)  # drawn by torch itself, as without it
    graphs = torch._dynamo.utils.counters["stats"]
    before = graphs["unique_graphs"]
    results = {}
    for compiled in (False, True):
        out = tmp_path / f"{compiled}"
        results[compiled] = trained(changed(recipe, compile=compiled), out)
    assert graphs["unique_graphs"] > before
    assert_close(weights_of(tmp_path / "True"), weights_of(tmp_path / "False"), 1e-3)
    for key in ("accuracy", "mcbr_val", "mcbr_train"):  # MCBR reads the head's input through a hook
        assert results[True][key] == pytest.approx(results[False][key], abs=1e-3)


# -- optimizers and groups -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"), [("adamw", "AdamW"), ("lamb", "Lamb"), ("sgdp", "SGDP"), ("lion", "Lion")]
)
def test_an_optimizer_of_timm(tmp_path: Path, name: str, kind: str) -> None:
    recipe = small(optimizer=name, lr=0.01)
    start = build(recipe, digits(recipe), ALONE)
    assert type(start.optimizer).__name__ == kind
    result = trained(recipe, tmp_path / "run")
    assert not result["diverged"]
    fixed = {id(p) for p in start.optimizer.param_groups[0]["params"]}
    names = [n for n, p in start.model.named_parameters() if id(p) in fixed]
    end = weights_of(tmp_path / "run")
    before = weight_norms([start.model.get_parameter(n) for n in names])
    after = weight_norms([end[n] for n in names])
    assert after.norm().item() == pytest.approx(before.norm().item(), rel=1e-6)
    assert not torch.allclose(after, before, rtol=1e-6)  # the joint norm is fixed, not each


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("adamww", "timm.optim has no optimizer 'adamww'; near: adamw"),
        ("adahessian", "optimizer 'adahessian' needs second derivatives"),
        ("bnbsgd", "optimizer 'bnbsgd' cannot be made here: "),
    ],
)
def test_an_optimizer_that_cannot_be_had(name: str, message: str) -> None:
    recipe = small(optimizer=name)
    with pytest.raises(ValueError, match=message):
        build(recipe, digits(recipe), ALONE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"drop_path": 0.3, "drop": 0.2},
        {"accumulate": 2, "clip": 0.5, "ema": 0.9, "precision": "fp16", "scope": "layer"},
        {"optimizer": "adamw", "lr": 0.01, "precision": "bf16", "channels_last": False},
    ],
    ids=str,
)
def test_options_together_train_and_keep_the_norm(tmp_path: Path, changes: dict[str, Any]) -> None:
    fields = {"model": "tinynet-se", "image_size": 16, "lr": 0.3, "train_per_class": 32}
    recipe = small(method="algorithm1", label_smoothing=0.0, **(fields | changes))
    result = trained(recipe, tmp_path / "run")
    rows = rows_of(tmp_path / "run")
    norms = [float(row["conv_norm"]) for row in rows]
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-5)
    assert float(rows[2]["train_loss"]) < float(rows[0]["train_loss"])
    assert not result["diverged"]


@pytest.mark.slow
def test_dropped_paths_depend_on_the_step_alone(tmp_path: Path) -> None:
    """What else the process draws, before or meanwhile, does not change the run."""

    class Draws(View):
        def step(self, step: int, figures: Mapping[str, float] | None) -> None:
            torch.rand(step)

    recipe = small(model="tinynet-se", image_size=16, drop_path=0.3, drop=0.2)
    trained(recipe, tmp_path / "a")
    torch.manual_seed(77)
    trained(recipe, tmp_path / "b", Draws())
    trained(changed(recipe, drop_path=0.0, drop=0.0), tmp_path / "none")
    a, b, none = (weights_of(tmp_path / name) for name in ("a", "b", "none"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["classifier.weight"], none["classifier.weight"])


BY_RULE = {"scope": "matrix", "lr": "auto", "step_length": "own", "radius": "fan_in"}


@pytest.mark.parametrize(
    "fields",
    [
        {"scope": "layer", "lr": 0.5},
        {"scope": "matrix", "lr": 0.05},
        BY_RULE | {"optimizer": "adamw"},
        BY_RULE | {"optimizer": "muon", "model": "micronet-vit", "image_size": 32},
    ],
    ids=["layer", "matrix", "adamw by the rule", "muon by the rule"],
)
def test_every_weight_keeps_its_norm(tmp_path: Path, fields: dict[str, Any]) -> None:
    recipe = small(**fields)
    scope = recipe.scope
    trained(recipe, tmp_path / "run")
    rows = rows_of(tmp_path / "run")
    assert float(rows[-1]["train_loss"]) < float(rows[0]["train_loss"])
    assert (rows[-1]["effective_lr"] == "") == (scope == "matrix")
    begun = build(recipe, digits(recipe), ALONE)
    start, end = begun.model, weights_of(tmp_path / "run")
    kept = {
        id(p)
        for group in begun.optimizer.param_groups
        if is_fixed(group)
        for p in fixed_weights(group)
    }
    names = [n for n, p in start.named_parameters() if id(p) in kept]
    assert len(names) == sum(p.ndim > 1 for n, p in start.named_parameters() if n != "pos_embed")
    after = weight_norms([end[n] for n in names])
    assert after.tolist() == pytest.approx(
        weight_norms([start.get_parameter(n) for n in names]).tolist(), rel=1e-6
    )
    assert not torch.equal(end[names[-1]], start.get_parameter(names[-1]))


def test_muon_has_the_hidden_matrices_of_a_recipe() -> None:
    recipe = small(**BY_RULE, optimizer="muon", model="micronet-vit", image_size=32)
    trainee = build(recipe, digits(recipe), ALONE)
    hidden, others, rest = trainee.optimizer.param_groups
    assert [group.get("fixnorm_length") for group in (hidden, others, rest)] == [
        "angle",
        "own",
        None,
    ]
    assert [group["use_fallback"] for group in (others, rest)] == [True, True]
    assert all(weight.ndim == 2 for weight in hidden["params"])
    attention = trainee.model.get_parameter("blocks.0.attn.qkv.weight")
    assert any(weight is attention for weight in hidden["params"])
    assert true_norm([attention]) == pytest.approx(len(attention) ** 0.5)  # by fan-in


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("method", get_args(MethodName))
@pytest.mark.parametrize("model", ["digits-resnet", "tinynet-se"])
def test_no_bias_and_no_norm_affine_is_ever_decayed(
    method: MethodName, optimizer: str, model: str
) -> None:
    recipe = small(method=method, optimizer=optimizer, model=model, image_size=32)
    trainee = build(recipe, digits(recipe), ALONE)
    groups = trainee.optimizer.param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    named = dict(trainee.model.named_parameters())
    assert decay.keys() == {id(p) for p in named.values()}
    decayed = {name for name, p in named.items() if decay[id(p)]}
    assert all(decay[id(named[name])] == recipe.weight_decay for name in decayed)
    kernels = {name for name, p in named.items() if p.ndim > 1}
    head = f"{trainee.heads[0]}.weight"
    expected = {"weight-decay": kernels, "algorithm1": {head}, "wn-fc": set(), "fixnorm": set()}
    assert decayed == expected[method]


def test_what_only_the_data_and_the_processes_tell_is_checked() -> None:
    two = World(rank=0, size=2, device=torch.device("cpu"))
    with pytest.raises(ValueError, match=r"batch_size must divide by 2 .* got 39: take 38"):
        build(small(batch_size=39), digits(small()), two)
    with pytest.raises(ValueError, match=r"divide by 16 \(2 processes, accumulate=8\) .* take 32"):
        build(small(accumulate=8), digits(small()), two)
    one_class = small(classes=1)
    with pytest.raises(ValueError, match="digits has one class, '0': a classifier needs two"):
        build(one_class, digits(one_class), ALONE)
    large = small(model="timm/test_vit")
    with pytest.raises(ValueError, match=r"timm/test_vit does not take 1×8×8 images: .*image_size"):
        build(large, digits(large), ALONE)


# -- two processes ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs by two processes of one torchrun."""
    place = tmp_path_factory.mktemp("two")
    recipes = {
        "split": SPLIT,
        "parts": changed(SPLIT, accumulate=2),
        "digits": small(val_per_class=None, epochs=2),  # 355 images: 177 and 178
    }
    trainings = {place / name: recipe for name, recipe in recipes.items()}
    train_by_two(trainings, data=None, place=place)
    return place


SPLIT = small(model=NO_BATCH_STATISTICS, image_size=32, epochs=2, val_per_class=9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["split", "parts"])
def test_two_processes_split_the_batch_exactly(
    two_processes: Path, tmp_path: Path, name: str
) -> None:
    """Weights and every figure are those of one process, where no batch statistics interfere."""
    trained(SPLIT, tmp_path / "one")
    assert_close(weights_of(two_processes / name), weights_of(tmp_path / "one"), 1e-4)
    for found, expected in zip(
        rows_of(two_processes / name), rows_of(tmp_path / "one"), strict=True
    ):
        assert found.keys() == expected.keys()
        for column in expected:
            value = float(expected[column])
            assert float(found[column]) == pytest.approx(value, rel=1e-3, abs=1e-6), column
        for column in ("train_accuracy", "val_accuracy"):  # counts: no image twice, none left out
            assert found[column] == expected[column]


@pytest.mark.slow
def test_two_processes_count_every_validation_image_once(two_processes: Path) -> None:
    out = two_processes / "digits"
    result = json.loads((out / "result.json").read_text())
    assert result["processes"] == 2
    recipe = recipe_from_dict(result["recipe"])
    data, model = digits(recipe), rebuild(out)
    assert len(data.val) == 355
    assert result["accuracy"] == pytest.approx(accuracy(model, data), abs=1e-9)
    (batch,) = data.val.eval_batches(batch_size=355)
    with torch.no_grad():
        features, _ = features_and_logits(model, batch.images)
    risk = fixnorm.mean_cross_boundary_risk(
        features, batch.labels, model.get_parameter("fc.weight")
    )
    assert result["mcbr_val"] == pytest.approx(risk.item(), abs=1e-6)


# -- what a person sees ----------------------------------------------------------------------------


def test_the_bar_shows_loss_accuracy_lr_speed_and_time_left(tmp_path: Path) -> None:
    text = io.StringIO()
    view = ProgressView(Console(file=text, force_terminal=True, width=160, color_system=None))
    view.wants_numbers = lambda: True  # type: ignore[method-assign]
    trained(small(lr=0.5), tmp_path / "run", view)
    shown = text.getvalue()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    for part in ("training", "loss ", "images/s", "6/6", "0:00:0", "left"):
        assert part in shown
    assert re.search(r"lr 0\.\d", shown)
    assert f"val {result['accuracy']:6.2f} %" in shown
    assert shown.endswith("\x1b[?25h") or shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def test_an_error_takes_the_bar_away(tmp_path: Path) -> None:
    """A cursor that stays hidden outlives the command."""
    text = io.StringIO()
    view = ProgressView(Console(file=text, force_terminal=True, width=100))
    view.loading(1, 10)
    with pytest.raises(ValueError, match="batch larger than the set"):
        train(small(batch_size=500), data=None, out=tmp_path / "run", view=view)
    shown = text.getvalue()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


# -- divergence ------------------------------------------------------------------------------------


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.parametrize("method", ["weight-decay", "algorithm1", "wn-fc"])
def test_a_training_that_diverges_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    """FixNorm itself stays finite: its weights are on a sphere and its head has a cap."""
    out = tmp_path / "run"
    with pytest.raises(SystemExit) as stopped:
        run(["train", "digits", "--method", method, "--out", str(out), "--set", "lr=1e6"])
    assert stopped.value.code == 1
    said = [line for line in capsys.readouterr().err.splitlines() if "diverged" in line]
    result = json.loads((out / "result.json").read_text(), parse_constant=refuse_constant)
    assert result["diverged"] is True
    epochs = result["epochs"]
    assert said == [f"diverged: the loss is not finite after epoch {epochs}; try a lower lr"]
    assert epochs <= 2
    assert result["share"] == epochs / 15
    assert len(rows_of(out)) == epochs
