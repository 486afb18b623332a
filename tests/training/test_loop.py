"""The loop, held against a slow twin, and its options one by one."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from processes import train_under_torchrun
from rich.console import Console
from small_runs import digits, small, trained, weights_of
from torch import Tensor, nn

import fixnorm
from fixnorm.commands import run
from fixnorm.data import Data
from fixnorm.groups import Method
from fixnorm.models import create, features_and_logits
from fixnorm.norm import weight_norms
from fixnorm.training import Recipe, changed, loop, train
from fixnorm.training.checkpoint import read
from fixnorm.training.distributed import World
from fixnorm.training.rebuild import rebuild
from fixnorm.training.setup import Trainee, build
from fixnorm.training.tasks import recipe_from_dict
from fixnorm.training.view import ProgressView, View
from small_nets import true_norm

ALONE = World(rank=0, size=1, device=torch.device("cpu"))
NO_BATCH_STATISTICS = "timm/test_efficientnet_gn"
"""GroupNorm alone: a batch may be split and the gradients still add up."""


class Steps(View):
    """Notes what every step shows."""

    def __init__(self) -> None:
        self.lr: list[float] = []
        self.loss: list[float] = []

    def wants_figures(self) -> bool:
        return True

    def step(self, step: int, figures: Mapping[str, float] | None) -> None:
        assert figures is not None
        self.lr.append(figures["lr"])
        self.loss.append(figures["loss"])


def rows_of(out: Path) -> list[dict[str, str]]:
    with (out / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def assert_close(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], tol: float) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(
            found[name], expected[name], rtol=tol, atol=tol, msg=lambda m, n=name: f"{n}: {m}"
        )


# -- against a slow twin ---------------------------------------------------------------------------


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """The target is (1 − ε) on the label and ε/C on every class."""
    log_p = logits - logits.exp().sum(1, keepdim=True).log()
    of_label = log_p[torch.arange(len(labels)), labels]
    return -((1 - smoothing) * of_label + smoothing * log_p.mean(1)).mean()


class Twin:
    """Weight-decay training written out: no optimizer, no scheduler, no library's loss."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.data = recipe, digits(recipe)
        torch.manual_seed(recipe.seed)
        self.model = create(recipe.model, num_classes=10, in_chans=1)
        self.velocity = {n: torch.zeros_like(p) for n, p in self.model.named_parameters()}
        self.average: dict[str, Tensor] = {}
        self.losses: list[float] = []
        self.lrs: list[float] = []
        self.train()

    def train(self) -> None:
        recipe = self.recipe
        steps = 2 * recipe.epochs
        warmup = round(2 * recipe.warmup_epochs)
        for t in range(steps):
            progress = (t - warmup) / (steps - warmup)
            eta = (t + 1) / warmup if t < warmup else (1 + math.cos(math.pi * progress)) / 2
            batches = self.data.train.batches(epoch=t // 2, batch_size=recipe.batch_size)
            images, labels = list(batches)[t % 2]
            self.step(t, recipe.lr * eta, images, labels)

    def step(self, t: int, lr: float, images: Tensor, labels: Tensor) -> None:
        recipe = self.recipe
        named = dict(self.model.named_parameters())
        self.lrs.append(lr)
        total = {n: torch.zeros_like(p) for n, p in named.items()}
        for part in torch.arange(len(labels)).chunk(recipe.accumulate):
            loss = smoothed_cross_entropy(
                self.model(images[part]), labels[part], recipe.label_smoothing
            )
            gradients = torch.autograd.grad(loss, list(named.values()))
            for n, gradient in zip(named, gradients, strict=True):
                total[n] += gradient * len(part) / len(labels)
        self.losses.append(loss.item())
        if recipe.clip is not None:
            norm = math.sqrt(sum(g.double().square().sum().item() for g in total.values()))
            total = {n: g * min(1.0, recipe.clip / norm) for n, g in total.items()}
        with torch.no_grad():
            for n, p in named.items():
                decay = recipe.weight_decay if p.ndim > 1 else 0.0
                gradient = total[n] + decay * p
                self.velocity[n] = recipe.momentum * self.velocity[n] + gradient
                p -= lr * (gradient + recipe.momentum * self.velocity[n])  # Nesterov
            if recipe.ema is not None:
                self.mix(recipe.ema if t > 1 else 0.0)  # the first steps are not worth keeping

    def mix(self, decay: float) -> None:
        for n, now in self.model.state_dict().items():
            old = self.average.get(n, now)
            mixed = decay * old + (1 - decay) * now if now.is_floating_point() else now
            self.average[n] = mixed.clone()

    def evaluated(self) -> nn.Module:
        if self.average:
            self.model.load_state_dict(self.average)
        return self.model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, data: Data) -> float:
    """Percent, all images in one batch."""
    (batch,) = data.val.eval_batches(batch_size=len(data.val))
    return 100 * (model(batch.images).argmax(1) == batch.labels).double().mean().item()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"label_smoothing": 0.0},
        {"label_smoothing": 0.4},
        {"warmup_epochs": 0},
        {"warmup_epochs": 1.5},
        {"momentum": 0.0},
        {"weight_decay": 0.05},
        {"clip": 0.2},
        {"clip": 1e9},
        {"accumulate": 4},
        {"accumulate": 2, "clip": 0.2},
        {"ema": 0.8},
        {"seed": 3},
        {"model": NO_BATCH_STATISTICS, "image_size": 32},
    ],
    ids=lambda changes: ",".join(f"{k}={v}" for k, v in changes.items()) or "as it is",
)
def test_a_run_is_the_training_written_out(tmp_path: Path, changes: dict[str, Any]) -> None:
    recipe = small(method="weight-decay", lr=0.05, channels_last=False, **changes)
    seen = Steps()
    result = trained(recipe, tmp_path / "run", seen)
    twin = Twin(recipe)
    assert seen.lr == pytest.approx(twin.lrs, rel=1e-12)
    assert seen.loss == pytest.approx(twin.losses, rel=1e-4)
    evaluated = twin.evaluated()
    assert_close(weights_of(tmp_path / "run"), evaluated.state_dict(), 1e-4)
    assert result["accuracy"] == pytest.approx(accuracy(evaluated, twin.data), abs=1e-9)


def test_the_learning_rate_of_every_step(tmp_path: Path) -> None:
    seen = Steps()
    trained(small(epochs=4, lr=0.8), tmp_path / "run", seen)
    assert seen.lr == pytest.approx(
        [
            0.4,  # half of the warm-up's two steps
            0.8,
            0.8,  # cos 0°
            0.4 * (1 + math.sqrt(3) / 2),  # cos 30°
            0.6,
            0.4,
            0.2,
            0.4 * (1 - math.sqrt(3) / 2),
        ]
    )


def test_the_average_is_what_is_evaluated_and_kept(tmp_path: Path) -> None:
    recipe = small(ema=0.5)
    result = trained(recipe, tmp_path / "run")
    saved = read(tmp_path / "run" / "checkpoints" / "step-000000005.ckpt")
    kept = weights_of(tmp_path / "run")
    assert not torch.equal(kept["fc.weight"], saved["model"]["fc.weight"])
    last = changed(recipe, ema=None)  # the same training, whose last weights are kept
    trained(last, tmp_path / "plain")
    now = weights_of(tmp_path / "plain")
    assert_close(
        {n: t for n, t in kept.items() if t.is_floating_point()},
        {n: 0.5 * (saved["ema"][n] + now[n]) for n, t in kept.items() if t.is_floating_point()},
        1e-6,
    )
    assert result["accuracy"] == pytest.approx(
        accuracy(rebuild(tmp_path / "run"), digits(recipe)), abs=1e-9
    )


def test_parts_of_a_batch_add_up_where_no_batch_statistics_are(tmp_path: Path) -> None:
    found = {}
    for parts in (1, 4):
        recipe = small(model=NO_BATCH_STATISTICS, image_size=32, accumulate=parts)
        trained(recipe, tmp_path / f"{parts}")
        found[parts] = weights_of(tmp_path / f"{parts}")
    assert_close(found[4], found[1], 1e-4)


def test_evaluation_may_be_rare_and_comes_last(tmp_path: Path) -> None:
    result = trained(small(eval_every=2), tmp_path / "run")
    accuracies = [row["val_accuracy"] for row in rows_of(tmp_path / "run")]
    assert accuracies[0] == ""
    assert "" not in accuracies[1:]
    assert result["accuracy"] == float(accuracies[2])


def test_the_angle_of_the_last_step_is_that_of_the_weights(tmp_path: Path) -> None:
    recipe = small(epochs=1)
    trained(recipe, tmp_path / "run")
    start = read(tmp_path / "run" / "checkpoints" / "step-000000001.ckpt")["model"]
    end = weights_of(tmp_path / "run")
    conv = [n for n, w in end.items() if w.ndim == 4]
    angles, norms = [], []
    for name in conv:
        a, b = start[name].double().flatten(), end[name].double().flatten()
        angles.append(math.acos(float(a @ b / (a.norm() * b.norm()))))
        norms.append(b.norm().item())
    mean = sum((a * n) ** 2 for a, n in zip(angles, norms, strict=True)) / sum(n**2 for n in norms)
    row = rows_of(tmp_path / "run")[0]
    assert float(row["angular_update"]) == pytest.approx(math.sqrt(mean), rel=1e-3)
    assert float(row["conv_norm"]) == pytest.approx(math.sqrt(sum(n**2 for n in norms)), rel=1e-6)


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
    recipe = small(lr=0.1, epochs=2)
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


def test_scope_layer_fixes_the_norm_of_every_weight(tmp_path: Path) -> None:
    recipe = small(scope="layer")
    trained(recipe, tmp_path / "run")
    start = build(recipe, digits(recipe), ALONE).model
    end = weights_of(tmp_path / "run")
    names = [n for n, p in start.named_parameters() if p.ndim > 1]
    after = weight_norms([end[n] for n in names])
    assert after.tolist() == pytest.approx(
        weight_norms([start.get_parameter(n) for n in names]).tolist(), rel=1e-6
    )
    assert not torch.equal(end["fc.weight"], start.get_parameter("fc.weight"))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("method", get_args(Method))
@pytest.mark.parametrize("model", ["digits-resnet", "tinynet-se"])
def test_no_bias_and_no_norm_affine_is_ever_decayed(
    method: Method, optimizer: str, model: str
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
    train_under_torchrun(trainings, data=None, place=place)
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
    view.wants_figures = lambda: True  # type: ignore[method-assign]
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
    assert len(rows_of(out)) == epochs
