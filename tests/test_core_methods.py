"""What sets the four methods apart, said once and held by the core."""

from __future__ import annotations

from typing import get_args

import pytest

import fixnorm
from fixnorm.groups import TARGET
from fixnorm.methods import METHODS, Method, MethodName, method_named
from helpers.small_nets import ResNet


def test_every_name_has_its_method() -> None:
    assert tuple(METHODS) == get_args(MethodName)
    assert all(method_named(name) is METHODS[name] is method for name, method in METHODS.items())


@pytest.mark.parametrize("value", ["FixNorm", "bo-weight-decay", "", None, ["fixnorm"], 1])
def test_any_other_name_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"method must be one of fixnorm, wn-fc, .* but got "):
        method_named(value)


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_a_method_does_what_it_says(method: Method) -> None:
    model = ResNet()
    if method.fixes:
        cap = {"alpha": 1.0} if method.caps else {}
        report = fixnorm.convert(model, method=method.name, **cap)
        assert (report.heads[0].cap is not None) == method.caps
        assert isinstance(model.fc, fixnorm.WeightNormLinear) == method.converts
    decay = {"weight_decay": 0.1} if method.decays else {}
    groups = fixnorm.param_groups(model, method=method.name, **decay)
    fixed = [p for group in groups if TARGET in group for p in group["params"]]
    decayed = [p for group in groups if group["weight_decay"] for p in group["params"]]
    matrices = [p for p in model.parameters() if p.ndim > 1]
    head = [model.fc.weight] if method.head == "plain" else []
    assert {*map(id, fixed)} == ({*map(id, matrices)} - {*map(id, head)} if method.fixes else set())
    assert {*map(id, decayed)} == (
        {*map(id, matrices)} - {*map(id, fixed)} if method.decays else set()
    )
