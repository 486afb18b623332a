"""``lr="auto"`` of scope ``matrix``: c/√T of the training, for any optimizer.

``test_reference.py`` holds whole trainings equal to the slow twin.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fixnorm
from fixnorm.angle_rule import ANGLE, OWN, PLAIN
from fixnorm.integrations import scalars
from helpers.small_nets import PatchNet, learnable_batches

STEPS = 25
"""√25 = 5."""


def converted() -> PatchNet:
    torch.manual_seed(0)
    model = PatchNet()
    fixnorm.convert(model, alpha=1.0, scope="matrix", sample=learnable_batches(1)[0][0])
    return model


def train(model: nn.Module, *optimizers: torch.optim.Optimizer, first: int = 0, last: int) -> None:
    for x, y in learnable_batches(last)[first:]:
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        for optimizer in optimizers:
            optimizer.step()


def lrs_of_steps(optimizer: torch.optim.Optimizer) -> list[list[float]]:
    """Those that each step is made with, as they come."""
    seen: list[list[float]] = []

    def look(self: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        seen.append([float(group["lr"]) for group in self.param_groups])

    optimizer.register_step_pre_hook(look)
    return seen


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_c_over_the_root_of_the_steps(kind: Any) -> None:
    """A scheduler multiplies it, and in between the optimizer has its own lr."""
    model = converted()
    optimizer = kind(fixnorm.param_groups(model), lr=1.0)
    handle = fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    halves = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5**n)
    seen = lrs_of_steps(optimizer)  # hooked after ours, so that it sees what the step sees
    for n in range(2):
        train(model, optimizer, first=n, last=n + 1)
        assert [g["lr"] for g in optimizer.param_groups] == [0.5**n] * 2
        halves.step()
    assert seen == [[c / 5 * 0.5**n for c in (ANGLE, PLAIN)] for n in range(2)]
    angle = handle.figures().matrices["up.weight"].angle
    assert angle == pytest.approx(ANGLE / 10, rel=0.1)


def test_steps_of_their_own_length_have_a_constant_of_their_own() -> None:
    model = converted()
    hidden, *others = fixnorm.param_groups(model, length="own", hidden_apart=True)
    muon = torch.optim.Muon([hidden], lr=1.0, weight_decay=0.0)
    adamw = torch.optim.AdamW(others, lr=1.0, weight_decay=0.0)
    fixnorm.attach(muon, adamw, lr="auto", steps=STEPS)
    seen = [lrs_of_steps(optimizer) for optimizer in (muon, adamw)]
    train(model, muon, adamw, last=1)
    assert seen == [[[ANGLE / 5]], [[OWN / 5, PLAIN / 5]]]


def test_sgd_has_no_length_of_its_own() -> None:
    groups = fixnorm.param_groups(converted(), length="own")
    with pytest.raises(ValueError, match=r"SGD's have not: leave length='own' out"):
        fixnorm.attach(torch.optim.SGD(groups, lr=1.0), lr="auto", steps=STEPS)
    assert groups[0]["fixnorm_radii"] is None  # as if it had not been tried


def test_the_own_lr_is_a_factor() -> None:
    optimizer = torch.optim.AdamW(fixnorm.param_groups(converted()), lr=0.02)
    with pytest.raises(ValueError, match=r"multiplies the optimizer's own lr, which is 0\.02"):
        fixnorm.attach(optimizer, lr="auto", steps=STEPS)


def test_a_resumed_training_is_the_whole_one() -> None:
    def fresh() -> tuple[PatchNet, torch.optim.Optimizer]:
        model = converted()
        return model, torch.optim.AdamW(fixnorm.param_groups(model, length="own"), lr=1.0)

    whole, optimizer = fresh()
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    train(whole, optimizer, last=2)
    kept = (
        {k: v.clone() for k, v in whole.state_dict().items()},
        {k: _copied(v) for k, v in optimizer.state_dict().items()},
    )
    train(whole, optimizer, first=2, last=4)
    resumed, again = fresh()
    resumed.load_state_dict(kept[0])
    again.load_state_dict(kept[1])
    handle = fixnorm.attach(again, lr="auto", steps=STEPS)
    train(resumed, again, first=2, last=4)
    for ours, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    rule = handle.figures().rule
    assert rule is not None
    assert (rule.steps, rule.seen, rule.gradient) == (STEPS, 4, None)


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    return [_copied(v) for v in value] if isinstance(value, list) else value


def test_a_state_of_another_length_is_refused() -> None:
    optimizer = torch.optim.AdamW(fixnorm.param_groups(converted()), lr=1.0)
    fixnorm.attach(optimizer, lr="auto", steps=STEPS).remove()
    with pytest.raises(ValueError, match=r"given steps=26 but .* of a training of 25"):
        fixnorm.attach(optimizer, lr="auto", steps=STEPS + 1)


def test_a_training_that_goes_on_is_told_so() -> None:
    model = converted()
    optimizer = torch.optim.AdamW(fixnorm.param_groups(model), lr=1.0)
    fixnorm.attach(optimizer, lr="auto", steps=2)
    with pytest.warns(UserWarning, match="goes on after the 2 steps"):
        train(model, optimizer, last=4)


def test_a_step_that_a_scaler_skips_is_none() -> None:
    """Fused AdamW is called for it; its lr and the count are as if it had not been."""
    model = converted()
    optimizer = torch.optim.AdamW(fixnorm.param_groups(model), lr=1.0)
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for x, y in learnable_batches(2):
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        if optimizer.param_groups[0]["fixnorm_seen"]:
            model.fc.weight.grad = torch.full_like(model.fc.weight, math.inf)
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.param_groups[0]["fixnorm_seen"] == 1


def test_it_is_in_the_scalars_of_integrations() -> None:
    model = converted()
    optimizer = torch.optim.AdamW(fixnorm.param_groups(model), lr=1.0)
    handle = fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    train(model, optimizer, last=1)
    assert scalars(handle.figures())["fixnorm/progress"] == 1 / STEPS
