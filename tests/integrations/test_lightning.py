"""The Lightning callback in real trainers: one rescale a step, through everything they do."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fixnorm
from fixnorm.commands import run as run_command
from fixnorm.groups import TARGET
from fixnorm.hook import handle_of
from helpers.frameworks import Rescales, assert_goes_on, fixed_of, images, loss, net, run, true_norm

pytest.importorskip("lightning")
from lightning.pytorch import callbacks
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    Callback,
    ModelCheckpoint,
)
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.plugins import MixedPrecision

from fixnorm.integrations.lightning import FixNormCallback
from helpers.lightning_run import Classifier, trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(num_workers|log_every_n_steps|Checkpoint directory)"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*CUDA is not available:UserWarning"),
]
STEPS = 4  # 32 images, 8 a batch


class Kept(Logger):
    """Keeps what it is told."""

    name, version = "kept", 0

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, dict[str, float]] = {}

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        assert step is not None
        self.rows.setdefault(step, {}).update(metrics)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None: ...


def plain_loop(epochs: int, *, accumulate: int = 1) -> dict[str, Tensor]:
    model = net()
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.3, momentum=0.9)
    fixnorm.attach(optimizer)
    for _ in range(epochs):
        for i, start in enumerate(range(0, 32, 8)):
            x, y = images()[start : start + 8]
            (loss(model, x, y) / accumulate).backward()
            if (i + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
    return model.state_dict()


@pytest.mark.tried(
    "Trainers",
    "Lightning: `FixNormCallback`",
    "works",
    "accumulation, mixed precision, two processes, checkpoints",
)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_fit_is_the_plain_loop(tmp_path: Path, seen: Rescales, accumulate: int) -> None:
    module = Classifier()
    options = {"max_epochs": 2, "accumulate_grad_batches": accumulate}
    fit = trainer(tmp_path, FixNormCallback(), **options)
    fit.fit(module)
    assert seen.count == 2 * STEPS / accumulate
    target, weights = fixed_of(fit.optimizers[0])
    assert target == pytest.approx(true_norm(weights_of(net())))
    assert true_norm(weights) == pytest.approx(target, rel=1e-6)
    expected = plain_loop(2, accumulate=accumulate)
    for name, value in module.model.state_dict().items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize("scaled", [False, True])
def test_lr_auto_follows_the_gradient_that_steps(tmp_path: Path, scaled: bool) -> None:
    """Accumulated and unscaled, before it is clipped, as in a loop that does so by hand."""
    module, callback = Classifier(lr=1.0), FixNormCallback(lr="auto")
    options: dict[str, Any] = {"max_epochs": 2, "accumulate_grad_batches": 2}
    if scaled:
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        options["plugins"] = [MixedPrecision("bf16-mixed", "cpu")]
        options["plugins"][0].scaler = scaler
        options["plugins"][0].autocast_context_manager = nullcontext
    fit = trainer(tmp_path, callback, gradient_clip_val=0.05, **options)
    fit.fit(module)
    rule = callback.handles[0].figures().rule
    assert rule is not None
    assert (rule.steps, rule.seen) == (4, 4)

    model = net()
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=1.0, momentum=0.9)
    handle = fixnorm.attach(optimizer, lr="auto", steps=4)
    for start in 2 * [0, 16]:
        for first in (start, start + 8):
            (loss(model, *images()[first : first + 8]) / 2).backward()
        handle.before_clipping()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        optimizer.zero_grad()
    for name, value in module.model.state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name], rtol=1e-5, atol=1e-6)


class ByHand(Classifier):
    """Two nets, an optimizer each."""

    def __init__(self) -> None:
        super().__init__(lr=1.0)
        self.other, self.automatic_optimization = net(seed=1), False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for optimizer, model in zip(self.optimizers(), (self.model, self.other), strict=True):
            optimizer.zero_grad()
            self.manual_backward(loss(model, *batch))
            optimizer.step()

    def configure_optimizers(self) -> Any:
        nets = (self.model, self.other)
        return [torch.optim.SGD(fixnorm.param_groups(n), lr=1.0, momentum=0.9) for n in nets]


def test_lr_auto_of_several_optimizers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"lr='auto' needs steps: how often a module that optim"):
        trainer(tmp_path, FixNormCallback(lr="auto"), max_epochs=1).fit(ByHand())
    callback = FixNormCallback(lr="auto", steps=STEPS)
    trainer(tmp_path, callback, max_epochs=1).fit(ByHand())
    assert [handle.figures().rule.seen for handle in callback.handles] == [STEPS, STEPS]


@pytest.mark.filterwarnings("ignore:.*max_epochs")
def test_lr_auto_needs_an_end(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"lr='auto' needs steps, and the trainer has no end"):
        trainer(tmp_path, FixNormCallback(lr="auto"), max_epochs=-1).fit(Classifier(lr=1.0))


def weights_of(model: torch.nn.Module) -> list[Tensor]:
    return [p for p in model.parameters() if p.ndim > 1]


def test_mixed_precision(tmp_path: Path, seen: Rescales) -> None:
    fit = trainer(tmp_path, FixNormCallback(), max_epochs=2, precision="bf16-mixed")
    fit.fit(Classifier())
    assert seen.count == 2 * STEPS
    target, weights = fixed_of(fit.optimizers[0])
    assert true_norm(weights) == pytest.approx(target, rel=1e-6)


def test_figures_reach_the_logger(tmp_path: Path) -> None:
    kept, callback = Kept(), FixNormCallback(angle_every=1)
    fit = trainer(tmp_path, callback, max_epochs=2, log_every_n_steps=2, logger=kept)
    module = Classifier()
    fit.fit(module)
    rows = {step: row for step, row in kept.rows.items() if "fixnorm/norm" in row}
    assert sorted(rows) == [1, 3, 5, 7]  # where the loss is logged
    assert all("loss" in row for row in rows.values())
    last, (handle,) = rows[7], callback.handles
    (group,) = handle.figures().groups
    assert last["fixnorm/norm"] == pytest.approx(group.norm)
    assert last["fixnorm/target"] == pytest.approx(fixed_of(fit.optimizers[0])[0])
    assert last["fixnorm/implied_decay"] == pytest.approx(group.implied_decay, rel=1e-4)
    assert last["fixnorm/g/8"] == pytest.approx(module.model[8].g.item())
    assert last["fixnorm/cap/8"] == 2.0  # α = 1, four classes
    assert 0 < last["fixnorm/angle/0.weight"] < 1
    assert fit.callback_metrics["fixnorm/cap/8"] == 2.0


def test_accumulated_steps_are_logged_once(tmp_path: Path) -> None:
    kept = Kept()
    options = {"max_epochs": 1, "log_every_n_steps": 1, "accumulate_grad_batches": 2}
    trainer(tmp_path, FixNormCallback(), logger=kept, **options).fit(Classifier())
    assert [step for step, row in kept.rows.items() if "fixnorm/norm" in row] == [0, 1]


def test_layer_scope_names_its_groups(tmp_path: Path) -> None:
    kept = Kept()
    fit = trainer(tmp_path, FixNormCallback(), max_steps=1, log_every_n_steps=1, logger=kept)
    fit.fit(Classifier(scope="layer"))
    names = ["fixnorm/norm/0.weight", "fixnorm/norm/3.weight", "fixnorm/norm/8.weight"]
    assert [name for name in kept.rows[0] if name.startswith("fixnorm/norm")] == names


def test_two_fits_with_one_callback(tmp_path: Path, seen: Rescales) -> None:
    callback, module = FixNormCallback(), Classifier()
    for _ in range(2):
        fit = trainer(tmp_path, callback, max_epochs=1)
        fit.fit(module)
        assert handle_of(fit.optimizers[0]) is None
    assert seen.count == 2 * STEPS


def test_a_module_that_attaches_itself_keeps_its_handle(tmp_path: Path, seen: Rescales) -> None:
    class Attached(Classifier):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            optimizer = super().configure_optimizers()
            self.handle = fixnorm.attach(optimizer)
            return optimizer

    with pytest.raises(ValueError, match=r"attached already, without lr='auto': leave attach to"):
        trainer(tmp_path, FixNormCallback(lr="auto"), max_epochs=1).fit(Attached())
    module, callback = Attached(), FixNormCallback()
    fit = trainer(tmp_path, callback, max_epochs=1)
    fit.fit(module)
    assert callback.handles == [module.handle]
    assert seen.count == STEPS
    assert handle_of(fit.optimizers[0]) is module.handle


def test_a_module_without_fixed_groups_is_told(tmp_path: Path) -> None:
    class Plain(Classifier):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    with pytest.raises(ValueError, match=r"no optimizer of the module has a fixed group: build it"):
        trainer(tmp_path, FixNormCallback(), max_epochs=1).fit(Plain())


def with_far_scale(module: Classifier) -> Tensor:
    """Its outputs, with the scale of its head far above the cap of 2."""
    with torch.no_grad():
        module.model[8].g.fill_(9.0)
    return module.model.eval()(images()[:4][0])


@pytest.mark.tried(
    "Leaving FixNorm",
    "Lightning: weights-only checkpoints",
    "works",
    "folded on save; full checkpoints stay as they are",
)
def test_weights_alone_are_folded_and_checkpoints_are_not(tmp_path: Path) -> None:
    module, saves = Classifier(), ModelCheckpoint(tmp_path, "weights", save_weights_only=True)
    options = {"max_epochs": 1, "callbacks": [saves], "enable_checkpointing": True}
    fit = trainer(tmp_path, FixNormCallback(), **options)
    fit.fit(module)
    expected = with_far_scale(module)
    fit.save_checkpoint(tmp_path / "weights-at-end.ckpt", weights_only=True)
    fit.save_checkpoint(tmp_path / "whole.ckpt")
    for file, has_scale in (("weights", False), ("weights-at-end", False), ("whole", True)):
        state = torch.load(tmp_path / f"{file}.ckpt", weights_only=True)["state_dict"]
        assert ("model.8.g" in state) is has_scale, file
    for file in ("weights-at-end", "whole"):  # both are the converted module's
        again = Classifier.load_from_checkpoint(tmp_path / f"{file}.ckpt")
        torch.testing.assert_close(again.model.eval()(images()[:4][0]), expected)
    plain = fixnorm.fold(Classifier(seed=1))
    state = torch.load(tmp_path / "weights-at-end.ckpt", weights_only=True)["state_dict"]
    plain.load_state_dict(state, strict=True)
    torch.testing.assert_close(plain.model.eval()(images()[:4][0]), expected)


def test_saving_weights_unfolded_is_a_choice(tmp_path: Path) -> None:
    fit = trainer(tmp_path, FixNormCallback(fold_on_save=False), max_steps=1)
    fit.fit(Classifier())
    fit.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)
    assert "model.8.g" in torch.load(tmp_path / "weights.ckpt", weights_only=True)["state_dict"]


def test_a_checkpoint_of_the_trainer_folds_by_the_command(tmp_path: Path) -> None:
    """With an average in it, whose dict does not say the cap."""
    averages = getattr(callbacks, "WeightAveraging", None)
    if averages is None:
        pytest.skip("Lightning has no WeightAveraging before 2.6")
    module = Classifier()
    fit = trainer(
        tmp_path, FixNormCallback(), max_epochs=1, callbacks=[averages(), SavesAtTheEnd()]
    )
    fit.fit(module)
    with pytest.raises(SystemExit, match="0"):
        run_command(["fold", str(tmp_path / "saved.ckpt"), str(tmp_path / "plain.ckpt")])
    before, after = (
        torch.load(tmp_path / name, weights_only=True) for name in ("saved.ckpt", "plain.ckpt")
    )
    assert "optimizer_states" in before
    assert "optimizer_states" not in after
    for key in ("state_dict", "current_model_state"):
        converted, plain = Classifier(seed=1), fixnorm.fold(Classifier(seed=1))
        converted.load_state_dict(before[key])
        plain.load_state_dict(after[key])
        x = images()[:4][0]
        torch.testing.assert_close(plain.model.eval()(x), converted.model.eval()(x))


class SavesAtTheEnd(Callback):
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        trainer.save_checkpoint(Path(trainer.default_root_dir) / "saved.ckpt")


class WithMore(Classifier):
    """A parameter of its own beside the converted model."""

    def __init__(self, *, all_of_it: bool) -> None:
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.ones(()))
        self.all_of_it = all_of_it

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return super().training_step(batch, batch_idx) * self.temperature

    def configure_optimizers(self) -> torch.optim.Optimizer:
        part = self if self.all_of_it else self.model
        return torch.optim.SGD(fixnorm.param_groups(part), lr=0.1)


@pytest.mark.tried(
    "Trainers",
    "Lightning: parameters outside `self.model`",
    "how to",
    "`fixnorm.param_groups(self)`",
)
def test_parameters_beside_the_converted_model_train(tmp_path: Path, seen: Rescales) -> None:
    module = WithMore(all_of_it=True)
    trainer(tmp_path, FixNormCallback(), max_steps=2).fit(module)
    assert module.temperature.item() != 1.0
    assert seen.count == 2


def test_parameters_in_no_optimizer_are_told(tmp_path: Path) -> None:
    module = WithMore(all_of_it=False)
    with pytest.warns(UserWarning, match=r"in no optimizer, so not trained: temperature\. fixnorm"):
        trainer(tmp_path, FixNormCallback(), max_steps=2).fit(module)
    assert module.temperature.item() == 1.0


class Finetuned(Classifier):
    """The convolutions are frozen until Lightning's callback adds them to the optimizer."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.backbone = self.model[:6]


@pytest.mark.tried(
    "Trainers",
    "Lightning: `BackboneFinetuning`",
    "works",
    "its plain groups are adopted, also when resumed",
)
@pytest.mark.filterwarnings("ignore:The provided params to be frozen already exist")
@pytest.mark.parametrize("resumed", [False, True])
def test_weights_that_are_unfrozen_later_keep_their_norm(tmp_path: Path, resumed: bool) -> None:
    """BackboneFinetuning adds them as a plain group; from then on the joint norm has them in it."""
    start = weights_of(net())
    module, file = Finetuned(), None
    for epochs in (2, 4) if resumed else (4,):
        module = module if file is None else Finetuned(seed=1)
        finetuning = BackboneFinetuning(1, backbone_initial_lr=0.2)
        fit = trainer(tmp_path, FixNormCallback(), max_epochs=epochs, callbacks=[finetuning])
        fit.fit(module, ckpt_path=file)
        file = tmp_path / "half.ckpt"
        fit.save_checkpoint(file)
    weights = weights_of(module.model)
    assert not any(map(torch.equal, weights, start))
    assert true_norm(weights) == pytest.approx(true_norm(start), rel=1e-6)


def end(folder: Path, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(folder / f"end-{rank}.pt", weights_only=True)
    return found


@pytest.mark.slow
def test_killed_and_resumed(tmp_path: Path) -> None:
    """The process dies in its second epoch; another, with other weights to begin with, goes on."""
    killed = tmp_path / "killed"
    run("lightning_run.py", killed, 3, STEPS + 2, 1, expect=-9)
    run("lightning_run.py", killed, 3, -1, 1, killed / f"step={STEPS}.ckpt")
    run("lightning_run.py", tmp_path, 3, -1, 1)
    assert_goes_on(killed / "end-0.pt", tmp_path / "end-0.pt", steps=3 * STEPS, left=2 * STEPS)


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    run("lightning_run.py", tmp_path, 2, -1, 2)
    first, second = end(tmp_path, 0), end(tmp_path, 1)
    assert first["targets"] == second["targets"] == [first["target"]] * STEPS  # 2 epochs of half
    assert first["norm"] == pytest.approx(first["target"], rel=1e-6)
    trained = [name for name, _ in net().named_parameters()]
    assert all(torch.equal(first["weights"][n], second["weights"][n]) for n in trained)


def test_the_target_of_the_checkpoint_counts(tmp_path: Path, seen: Rescales) -> None:
    """Not the norm that is found when training goes on: here the saved one is twice as large."""
    first = trainer(tmp_path, FixNormCallback(), max_epochs=1)
    first.fit(Classifier())
    file = tmp_path / "doubled.ckpt"
    first.save_checkpoint(file)
    state = torch.load(file, weights_only=True)
    (group,) = [g for g in state["optimizer_states"][0]["param_groups"] if TARGET in g]
    group[TARGET] *= 2
    torch.save(state, file)
    second = trainer(tmp_path, FixNormCallback(), max_epochs=2)
    second.fit(Classifier(), ckpt_path=file)
    assert seen.targets[STEPS:] == [2 * seen.targets[0]] * STEPS
    weights = fixed_of(second.optimizers[0])[1]
    assert true_norm(weights) == pytest.approx(2 * seen.targets[0], rel=1e-6)


def test_lightning_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fixnorm.integrations.lightning")
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs lightning: pip install 'fixnorm\[light"):
        import fixnorm.integrations.lightning  # noqa: F401
