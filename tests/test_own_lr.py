"""What ``lr="auto"`` is given: an SGD with an lr of one, its schedule, states of trainings."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers

import fixnorm
from fixnorm import own_lr, sphere_rule
from helpers.auto_lr import STEPS, backward, start, train

SCHEDULERS = {
    "LambdaLR": lambda o: schedulers.LambdaLR(o, lambda n: (n + 1) / 5),
    "OneCycleLR": lambda o: schedulers.OneCycleLR(o, 1.0, total_steps=STEPS),
    "CyclicLR": lambda o: schedulers.CyclicLR(o, 0.1, 1.0, step_size_up=3),
    "SequentialLR": lambda o: schedulers.SequentialLR(
        o,
        [schedulers.LinearLR(o, 0.1, total_iters=2), schedulers.CosineAnnealingLR(o, 3)],
        milestones=[2],
    ),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, swa_lr=0.5, anneal_epochs=3),
    "ReduceLROnPlateau": lambda o: Plateau(o, patience=0),
}


class Plateau(schedulers.ReduceLROnPlateau):
    def step(self, metrics: Any = 1.0, epoch: Any = None) -> None:
        super().step(metrics)


@pytest.mark.tried(
    "Features of torch", '`lr="auto"` with any scheduler', "works", "it multiplies an lr of 1.0"
)
@pytest.mark.parametrize(
    ("name", "attach_first"),
    [*((name, True) for name in SCHEDULERS), ("OneCycleLR", False), ("LambdaLR", False)],
)
def test_schedulers_multiply(name: str, attach_first: bool) -> None:
    model, optimizer = start()
    twin = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0, momentum=0.9)
    expected, scheduler = [], SCHEDULERS[name](twin)
    for _ in range(5):
        group = twin.param_groups[0]  # some cycle the momentum, too
        expected.append(group["lr"] * (1 - group["momentum"]))
        twin.step()
        scheduler.step()
    scheduler = None if attach_first else SCHEDULERS[name](optimizer)
    handle = fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    lrs = train(model, optimizer, scheduler=scheduler or SCHEDULERS[name](optimizer))
    rule = handle.figures().rule
    target = optimizer.param_groups[0]["fixnorm_target"]
    factor = sphere_rule.auto_lr(target, rule.gradient**2, STEPS)
    assert lrs[-1] == pytest.approx(factor * expected[-1], rel=1e-6)


@pytest.mark.parametrize("attach_first", [False, True])
def test_a_peak_of_the_old_kind_is_refused(attach_first: bool) -> None:
    model, optimizer = start()
    if attach_first:
        fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    schedulers.OneCycleLR(optimizer, 0.1, total_steps=STEPS)
    backward(model, 0)
    attach = functools.partial(fixnorm.attach, optimizer, lr="auto", steps=STEPS)
    with pytest.raises(ValueError, match=r"own lr, which is 0.1 .* scheduler for a peak of 1.0"):
        (optimizer.step if attach_first else attach)()


def test_a_schedule_of_the_old_kind_is_told_once_a_warm_up_is_over() -> None:
    model, optimizer = start()
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    scheduler = schedulers.LambdaLR(optimizer, lambda n: 0.05 * min(n, 2))
    backward(model, 0)
    for n in range(7):
        if n == 4:  # the fifth step of twenty
            with pytest.warns(UserWarning, match="own lr was 0.1 at most in the first 5 of 20 ste"):
                optimizer.step()
        else:
            optimizer.step()
        scheduler.step()


def test_an_optimizer_that_has_not_all_of_the_model() -> None:
    model, _ = start()
    fixed, _ = fixnorm.param_groups(model)
    with pytest.warns(UserWarning, match=r"and norm.weight and \d+ more is not in it: an opt"):
        fixnorm.attach(torch.optim.SGD([fixed], lr=1.0), lr="auto", steps=STEPS)


def test_states_of_other_trainings() -> None:
    model, optimizer = start()
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    auto = copy.deepcopy(optimizer.state_dict())
    _, other = start(lr=0.3)
    fixnorm.attach(other)
    own = other.state_dict()
    backward(model, 0)
    optimizer.load_state_dict(own)
    with pytest.raises(ValueError, match=r"a learning rate of its own \(0.3\): load it before at"):
        optimizer.step()
    auto["param_groups"][0][sphere_rule.STEPS] = 7
    optimizer.load_state_dict(auto)
    with pytest.raises(ValueError, match=r"given steps=20 but .* a training of 7: give the same"):
        optimizer.step()
    other.load_state_dict(auto)
    with pytest.warns(UserWarning, match=r"its lr of 1 only a factor: attach\(optimizer, lr='"):
        other.step()
    other.step()  # told once


def test_it_warns_once_when_there_are_more_steps_than_said() -> None:
    model, optimizer = start()
    fixnorm.attach(optimizer, lr="auto", steps=2)
    backward(model, 0)
    for n in range(4):
        if n == 2:
            with pytest.warns(UserWarning, match="goes on after the 2 steps"):
                optimizer.step()
        else:
            optimizer.step()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": "auto"}, r"lr='auto' needs steps, .* but got None"),
        ({"lr": "auto", "steps": 0}, r"at least 1\) but got 0"),
        ({"lr": "auto", "steps": 2.5}, "but got 2.5"),
        ({"lr": 0.1}, "lr must be 'auto', with steps, or left out but got lr=0.1"),
        ({"steps": 10}, "or left out but got lr=None, steps=10"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    _, optimizer = start()
    with pytest.raises(ValueError, match=message):
        fixnorm.attach(optimizer, **arguments)
    fixnorm.attach(optimizer)  # nothing was left behind


@pytest.mark.parametrize("kind", ["AdamW", "RMSprop", "Muon"])
def test_it_is_for_sgd(kind: str) -> None:
    """Steps that have a length of their own do not follow the gradient's."""
    model, _ = start()
    groups = [{"params": g["params"]} | g for g in fixnorm.param_groups(model)]
    if kind == "Muon":
        groups = [{**groups[0], "params": [p for p in groups[0]["params"] if p.ndim == 2]}]
    optimizer = getattr(torch.optim, kind)(groups, lr=1.0, weight_decay=0.0)
    with pytest.raises(ValueError, match=rf"lr='auto' is for SGD, .* those of {kind} are not"):
        own_lr.check_sgd(optimizer)


@pytest.mark.parametrize("lr", [1e-3, 0.1, 10.0])
def test_it_is_for_an_lr_of_one(lr: float) -> None:
    _, optimizer = start(lr=lr)
    with pytest.raises(ValueError, match=rf"own lr, which is {lr:g} .* build it with lr=1.0"):
        fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    _, optimizer = start(lr=0.4)
    with pytest.warns(UserWarning, match=r"with 0.4 every step is 0.4 times the rule's. Build it"):
        fixnorm.attach(optimizer, lr="auto", steps=STEPS)


def test_the_state_of_another_length_is_refused() -> None:
    _, optimizer = start()
    fixnorm.attach(optimizer, lr="auto", steps=STEPS).remove()
    with pytest.raises(ValueError, match=r"steps=5 but .* a training of 20: give the same"):
        fixnorm.attach(optimizer, lr="auto", steps=5)
