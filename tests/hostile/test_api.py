"""Bad calls of the Python API: an error of ours, in one line, that names the argument.

Every argument of every public function meets every value it cannot take. What is asserted is the
promise: a ``TypeError`` or ``ValueError`` raised by FixNorm itself, not from within torch.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fixnorm
from fixnorm.averages import measure_average, project_average_
from fixnorm.batch_statistics import update_statistics_
from helpers.small_nets import CLASSES, IMAGES, ResNet


class Odd:
    """Nothing that anybody expects."""

    def __repr__(self) -> str:
        return "<odd>"


def converted() -> ResNet:
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    return model


def built(attached: bool = True) -> tuple[ResNet, torch.optim.Optimizer]:
    model = converted()
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.1)
    if attached:
        fixnorm.attach(optimizer)
    return model, optimizer


NOT_A_NUMBER = [Odd(), "1", [1.0], {}, True, 1j]
NOT_POSITIVE = [*NOT_A_NUMBER, 0.0, -1.0, math.nan]
NOT_A_MODEL = [None, 5, "resnet", [], torch.zeros(2), ResNet, Odd()]
NOT_AN_OPTIMIZER = [None, 5, "sgd", [], torch.zeros(2), Odd()]
NOT_NAMES = [5, 2.5, True, Odd(), [None], [["fc"]], {1: 2}]
NOT_A_SAMPLE = [5, 2.5, "image", [torch.zeros(1)], Odd()]
FEATURES, LABELS, WEIGHT = torch.randn(4, 6), torch.arange(4), torch.randn(5, 6)

Call = Callable[[Any], object]
CALLS: dict[str, tuple[Call, list[Any]]] = {
    "audit model": (lambda v: fixnorm.audit(v), NOT_A_MODEL),
    "audit sample": (lambda v: fixnorm.audit(ResNet(), v), NOT_A_SAMPLE),
    "convert model": (lambda v: fixnorm.convert(v, alpha=1.0), NOT_A_MODEL),
    "convert alpha": (lambda v: fixnorm.convert(ResNet(), alpha=v), NOT_POSITIVE),
    "convert method": (
        lambda v: fixnorm.convert(ResNet(), alpha=1.0, method=v),
        [None, 5, "sgd", [], "FixNorm", Odd()],
    ),
    "convert head": (lambda v: fixnorm.convert(ResNet(), alpha=1.0, head=v), NOT_NAMES),
    "convert exclude": (
        lambda v: fixnorm.convert(ResNet(), alpha=1.0, exclude=v),
        [None, *NOT_NAMES],
    ),
    "convert sample": (
        lambda v: fixnorm.convert(ResNet(), alpha=1.0, sample=v),
        NOT_A_SAMPLE,
    ),
    "param_groups model": (lambda v: fixnorm.param_groups(v), NOT_A_MODEL),
    "param_groups scope": (
        lambda v: fixnorm.param_groups(converted(), scope=v),
        [5, "all", [], Odd(), "matrix"],
    ),
    "convert scope": (
        lambda v: fixnorm.convert(nn.Linear(3, 2), alpha=1.0, scope=v, sample=torch.randn(4, 3)),
        [5, "all", [], Odd()],
    ),
    "convert radius": (
        lambda v: fixnorm.convert(
            nn.Linear(3, 2), alpha=1.0, scope="matrix", radius=v, sample=torch.randn(4, 3)
        ),
        [0, -1.0, "fan_out", [], math.nan, math.inf, True, Odd()],
    ),
    "param_groups method": (
        lambda v: fixnorm.param_groups(converted(), method=v),
        [5, "sgd", [], Odd()],
    ),
    "param_groups weight_decay": (
        lambda v: fixnorm.param_groups(ResNet(), method="weight-decay", weight_decay=v),
        [*NOT_A_NUMBER, None, -1.0, math.nan, math.inf],
    ),
    "param_groups beside": (
        lambda v: fixnorm.param_groups(converted(), beside=v),
        [5, "sgd", [], torch.zeros(2), Odd()],
    ),
    "attach optimizer": (lambda v: fixnorm.attach(v), NOT_AN_OPTIMIZER),
    "attach optimizer twice": (lambda v: fixnorm.attach(built(False)[1], v), NOT_AN_OPTIMIZER),
    "attach angle_every": (
        lambda v: fixnorm.attach(built(False)[1], angle_every=v),
        [None, -1, 1.5, "1", True, math.nan, Odd()],
    ),
    "handle_of optimizer": (lambda v: fixnorm.handle_of(v), NOT_AN_OPTIMIZER),
    "fold model": (lambda v: fixnorm.fold(v), NOT_A_MODEL),
    "fold_state_dict state": (
        lambda v: fixnorm.fold_state_dict(v),
        [None, 5, "file.pt", [], torch.zeros(2), ResNet(), Odd()],
    ),
    "fold_state_dict alpha": (
        lambda v: fixnorm.fold_state_dict(dict(converted().state_dict()), alpha=v),
        NOT_POSITIVE,
    ),
    "fold_state_dict head": (
        lambda v: fixnorm.fold_state_dict(dict(converted().state_dict()), alpha=1.0, head=v),
        [5, 2.5, True, Odd(), [None]],
    ),
    "FixNormLinear alpha": (lambda v: fixnorm.FixNormLinear(3, 4, alpha=v), [None, *NOT_POSITIVE]),
    "FixNormConv2d alpha": (
        lambda v: fixnorm.FixNormConv2d(3, 4, 1, alpha=v),
        [None, *NOT_POSITIVE],
    ),
    "layer alpha": (
        lambda v: setattr(fixnorm.FixNormLinear(3, 4, alpha=1.0), "alpha", v),
        [None, *NOT_POSITIVE],
    ),
    "mean_cross_boundary_risk features": (
        lambda v: fixnorm.mean_cross_boundary_risk(v, LABELS, WEIGHT),
        [None, 5, "x", [1.0], FEATURES[0], FEATURES[:3], FEATURES[:, :5], FEATURES.long(), Odd()],
    ),
    "mean_cross_boundary_risk labels": (
        lambda v: fixnorm.mean_cross_boundary_risk(FEATURES, v, WEIGHT),
        [None, 5, "x", [1], LABELS[:3], LABELS.float(), LABELS + 3, -LABELS, Odd()],
    ),
    "mean_cross_boundary_risk weight": (
        lambda v: fixnorm.mean_cross_boundary_risk(FEATURES, LABELS, v),
        [None, 5, "x", WEIGHT[0], WEIGHT[:1], WEIGHT[:, :3], Odd()],
    ),
    "measure_average average": (lambda v: measure_average(v, built()[1]), NOT_A_MODEL),
    "measure_average optimizer": (lambda v: measure_average(converted(), v), NOT_AN_OPTIMIZER),
    "project_average_ average": (lambda v: project_average_(v, built()[1]), NOT_A_MODEL),
    "update_statistics_ model": (
        lambda v: update_statistics_(v, [torch.randn(IMAGES)]),
        NOT_A_MODEL,
    ),
}
CASES = [(name, i) for name, (_, values) in CALLS.items() for i in range(len(values))]


@pytest.mark.parametrize(
    ("name", "index"), CASES, ids=lambda v: v if isinstance(v, str) else str(v)
)
def test_the_promise(name: str, index: int) -> None:
    call, values = CALLS[name]
    value = values[index]
    with pytest.raises((TypeError, ValueError)) as caught:
        call(value)
    message = str(caught.value)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert "/fixnorm/" in last.filename, f"{value!r}: {last.filename}: {message}"
    assert "\n" not in message
    assert 20 < len(message) < 600, f"{value!r}: {message}"
    function, _, argument = name.partition(" ")
    words = {argument.split()[0], function}
    assert any(word in message for word in words), f"{value!r}: {message}"


def test_a_bad_call_leaves_the_model_as_it_was() -> None:
    model = ResNet()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    shape = repr(model)
    for name, (_, values) in CALLS.items():
        if name in ("convert head", "convert exclude", "convert sample"):
            argument = name.split()[1]
            for value in values:
                with pytest.raises((TypeError, ValueError), match=argument):
                    fixnorm.convert(model, **{"alpha": 1.0, argument: value})
    assert repr(model) == shape
    after: dict[str, Tensor] = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert model(torch.randn(IMAGES)).shape == (IMAGES[0], CLASSES)
    assert isinstance(model.fc, nn.Linear)
