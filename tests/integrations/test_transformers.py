"""FixNorm in real transformers trainers: one rescale a step, through everything they do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import fixnorm
from fixnorm.groups import TARGET
from fixnorm.hook import handle_of
from helpers.frameworks import CLASSES, Rescales, assert_goes_on, fixed_of, run, true_norm

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from transformers import Trainer

from fixnorm.integrations.transformers import FixNormCallback, attach, create_optimizer
from helpers.transformers_run import arguments, classifier, examples, trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*(pin_memory|CUDA)"),
]
STEPS = 8  # two epochs of 32 images, 8 a batch


@pytest.mark.tried(
    "Trainers",
    "transformers: `Trainer`",
    "works",
    "`integrations.transformers.attach`",
)
@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}, {"bf16": True}])
def test_train(tmp_path: Path, seen: Rescales, options: dict[str, Any]) -> None:
    made = trainer(tmp_path, **options)
    start = true_norm(fixed_of(made.optimizer)[1])
    made.train()
    assert made.state.global_step == STEPS / options.get("gradient_accumulation_steps", 1)
    assert seen.count == made.state.global_step
    target, weights = fixed_of(made.optimizer)
    assert target == pytest.approx(start, rel=1e-6)
    assert seen.norms == pytest.approx([target] * seen.count, rel=1e-6)
    assert true_norm(weights) == pytest.approx(target, rel=1e-6)
    assert handle_of(made.optimizer) is None  # detached at the end


def test_groups_follow_roles(tmp_path: Path) -> None:
    model = classifier()
    optimizer = create_optimizer(model, arguments(tmp_path), momentum=0.9, nesterov=True)
    assert isinstance(optimizer, torch.optim.SGD)
    fixed, rest = optimizer.param_groups
    assert (fixed["lr"], fixed["momentum"], fixed["nesterov"]) == (0.3, 0.9, True)
    assert {id(p) for p in fixed["params"]} == {id(p) for p in model.parameters() if p.ndim > 1}
    assert all(p.ndim == 1 for p in rest["params"])
    adam = create_optimizer(model, arguments(tmp_path, optim="adamw_torch", adam_beta1=0.8))
    assert isinstance(adam, torch.optim.AdamW)
    assert adam.defaults["betas"] == (0.8, 0.999)
    assert [group["weight_decay"] for group in adam.param_groups] == [0.0, 0.0]


def test_weight_decay_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no weight decay but got weight_decay=0\.01; leave it"):
        create_optimizer(classifier(), arguments(tmp_path, weight_decay=0.01))


@pytest.mark.tried(
    "Trainers",
    "transformers: `optim=` without groups (GaLore, LOMO)",
    "refused",
    "their groups are not ours",
)
def test_an_optimizer_that_takes_no_groups_is_refused(tmp_path: Path) -> None:
    from unittest import mock

    with (
        mock.patch.object(Trainer, "get_optimizer_cls_and_kwargs", return_value=(dict, {})),
        pytest.raises(ValueError, match="optim='sgd' is no optimizer over groups: use one such as"),
    ):
        create_optimizer(classifier(), arguments(tmp_path))


def test_figures_are_in_the_log_history(tmp_path: Path) -> None:
    model = classifier()
    made = trainer(tmp_path, model, eval_strategy="epoch")
    made.train()
    logged = [row for row in made.state.log_history if "fixnorm/norm" in row]
    assert [row["step"] for row in logged] == [2, 4, 6, 8]
    assert all("loss" in row for row in logged)
    assert not any("fixnorm/norm" in row for row in made.state.log_history if "eval_loss" in row)
    last = logged[-1]
    assert last["fixnorm/target"] == fixed_of(made.optimizer)[0]
    assert last["fixnorm/g/classifier.1"] == model.classifier[1].g.item()
    assert last["fixnorm/cap/classifier.1"] == 2.0  # α = 1, four classes
    assert last["fixnorm/implied_decay"] == pytest.approx(
        (last["fixnorm/norm"] / last["fixnorm/target"] - 1) * last["fixnorm/target"] ** -2
        / last["fixnorm/effective_lr"],
        rel=1e-3,
    )  # fmt: skip


def test_figures_reach_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = trainer(tmp_path / "out", report_to="tensorboard", max_steps=2)
    made.train()
    (file,) = tmp_path.rglob("events.out.tfevents.*")
    events = EventAccumulator(str(file)).Reload()
    (norm,) = events.Scalars("train/fixnorm/norm")
    assert norm.step == 2
    assert norm.value == pytest.approx(made.state.log_history[0]["fixnorm/norm"])


def test_the_callback_alone(tmp_path: Path, seen: Rescales) -> None:
    model, args = classifier(), arguments(tmp_path, max_steps=2)
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.1)
    made = Trainer(
        model=model,
        args=args,
        train_dataset=examples(),
        optimizers=(optimizer, None),
        callbacks=[FixNormCallback(angle_every=1)],
    )
    made.train()
    assert seen.count == 2
    assert "fixnorm/angle/classifier.1.weight" in made.state.log_history[0]


@pytest.mark.slow
def test_training_twice_and_attached_before(tmp_path: Path, seen: Rescales) -> None:
    made = trainer(tmp_path, max_steps=2)
    handle = fixnorm.attach(made.optimizer)
    for _ in range(2):
        made.train()
        assert handle_of(made.optimizer) is handle
    assert seen.count == 4
    with pytest.raises(ValueError, match="has an optimizer already, which takes no momentum any"):
        attach(made, momentum=0.9)


def test_a_plain_optimizer_is_told(tmp_path: Path) -> None:
    made = Trainer(
        model=classifier(),
        args=arguments(tmp_path, max_steps=1),
        train_dataset=examples(),
        callbacks=[FixNormCallback()],
    )
    with pytest.raises(ValueError, match=r"no fixed group: build it from fixnorm\.param_groups"):
        made.train()


@pytest.mark.slow
def test_lr_auto(tmp_path: Path) -> None:
    """Twice: the second training of one trainer begins anew."""
    mean_squares: list[float] = []
    made = trainer(tmp_path, learning_rate=1.0, gradient_accumulation_steps=2)
    for _ in range(2):
        made.train()
        last = [row for row in made.state.log_history if "fixnorm/lr" in row][-1]
        assert last["fixnorm/progress"] == 1.0
        assert made.optimizer.param_groups[0]["fixnorm_steps"] == made.state.max_steps == STEPS / 2
        mean_squares.append(made.optimizer.param_groups[0]["fixnorm_mean_square"])
    assert (
        mean_squares[0] > 100 * made.args.max_grad_norm**2
    )  # of gradients before they are clipped
    model, default = classifier(), arguments(tmp_path, learning_rate=5e-5)
    assert create_optimizer(model, default, lr="auto").param_groups[0]["lr"] == 1.0
    with pytest.raises(ValueError, match=r"lr='auto' and learning_rate=0.3: leave learning_rate"):
        create_optimizer(model, arguments(tmp_path), lr="auto")
    with pytest.raises(ValueError, match=r"lr='auto' is for SGD, .* those of AdamW are not"):
        create_optimizer(
            model, arguments(tmp_path, learning_rate=1.0, optim="adamw_torch"), lr="auto"
        )


def saved(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(folder / "model.safetensors")
    return found


@pytest.mark.slow
@pytest.mark.tried(
    "Leaving FixNorm",
    "transformers: `trainer.save_model()`",
    "works",
    "folded on save; checkpoints stay as they are",
)
@pytest.mark.parametrize("options", [{}, {"torch_compile": True, "torch_compile_backend": "eager"}])
def test_what_is_saved_is_folded_and_checkpoints_are_not(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    model = classifier()
    made = trainer(tmp_path, model, save_strategy="steps", save_steps=4, **options)
    made.train()
    with torch.no_grad():
        model.classifier[1].g.fill_(9.0)  # far above its cap of 2
    made.save_model(str(tmp_path / "end"))
    made.save_model(_internal_call=True)  # as push_to_hub calls it
    images = torch.stack([example["pixel_values"] for example in examples()[:4]])
    expected = model.eval()(images).logits
    for folder in (tmp_path / "end", tmp_path):
        read, about = type(model).from_pretrained(folder, output_loading_info=True)
        assert not about["unexpected_keys"]
        torch.testing.assert_close(read.eval()(images).logits, expected)
    assert "classifier.1.g" not in saved(tmp_path / "end")
    assert model.classifier[1].g.item() == 9.0  # the model is as before
    assert saved(tmp_path / "checkpoint-4").keys() == model.state_dict().keys()
    assert saved(tmp_path / "checkpoint-8").keys() == model.state_dict().keys()


def test_saving_unfolded_is_a_choice(tmp_path: Path) -> None:
    made = Trainer(model=classifier(), args=arguments(tmp_path), train_dataset=examples())
    attach(made, fold_on_save=False)
    made.save_model(str(tmp_path))
    assert "classifier.1.g" in saved(tmp_path)


def test_a_model_that_cannot_be_folded_is_told_before_the_training(tmp_path: Path) -> None:
    model = classifier()
    other = model.classifier.append(torch.nn.Linear(8, CLASSES))[-1]
    other.weight = model.classifier[1].weight
    made = Trainer(model=model, args=arguments(tmp_path), train_dataset=examples())
    with pytest.raises(
        ValueError, match=r"would untie .* classifier\.1\.weight \(scale .* \(plain"
    ):
        attach(made)


@pytest.mark.slow
def test_killed_and_resumed(tmp_path: Path) -> None:
    """The process dies after five steps; another, with other weights to begin with, goes on."""
    killed, whole_run = tmp_path / "killed", tmp_path / "whole"
    run("transformers_run.py", killed, 5, expect=-9)
    run("transformers_run.py", killed, -1, killed / "checkpoint-3")
    run("transformers_run.py", whole_run, -1)
    assert_goes_on(killed / "end.pt", whole_run / "end.pt", steps=STEPS, left=STEPS - 3)


@pytest.mark.slow
def test_the_target_of_the_checkpoint_counts(tmp_path: Path, seen: Rescales) -> None:
    """Not the norm that is found when training goes on: here the saved one is twice as large."""
    options = {"save_strategy": "steps", "save_steps": 3, "lr_scheduler_type": "constant"}
    trainer(tmp_path, max_steps=3, **options).train()
    file = tmp_path / "checkpoint-3" / "optimizer.pt"
    state = torch.load(file, weights_only=True)
    (group,) = [group for group in state["param_groups"] if TARGET in group]
    group[TARGET] *= 2
    torch.save(state, file)
    made = trainer(tmp_path, max_steps=5, **options)
    with pytest.warns(UserWarning, match="fixed weights had 0.5 times their norm before a step"):
        made.train(resume_from_checkpoint=str(file.parent))
    assert seen.targets[3:] == [2 * seen.targets[0]] * 2
    assert true_norm(fixed_of(made.optimizer)[1]) == pytest.approx(2 * seen.targets[0], rel=1e-6)


def test_transformers_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fixnorm.integrations.transformers")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"transformers: pip install 'fixnorm\[transf"):
        import fixnorm.integrations.transformers  # noqa: F401
