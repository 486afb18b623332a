"""The norms of a GPU, taken on the CPU: equal to those of the CPU, and nothing asks for a value."""

from __future__ import annotations

import copy

import pytest
import torch

import fixnorm
from fixnorm import plain_norms
from fixnorm.groups import TARGET
from fixnorm.norm import rescale_, weight_norms
from helpers.small_nets import ResNet


def both_branches(weights: list[torch.Tensor], target: float, **more: object) -> list[tuple]:
    """What each of the two makes of a copy of the weights."""
    found = []
    for looping in (("cpu",), ()):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plain_norms, "_LOOPING", looping)
            own = copy.deepcopy(weights)
            found.append((own, rescale_(own, target, **more)))  # type: ignore[arg-type]
    return found


MANY = [(i % 7 + 1, i % 5 + 1, 3) for i in range(200)]
WEIGHTS = {
    "float32": [torch.randn(64, 32), torch.randn(8, 4, 3, 3), torch.randn(5)],
    "float64": [torch.randn(64, 32).double(), torch.randn(5).double()],
    "bfloat16": [torch.randn(64, 32).bfloat16(), torch.randn(5).bfloat16()],
    "float16": [torch.randn(64, 32).half(), torch.randn(5).half()],
    "mixed": [torch.randn(9, 9), torch.randn(9).double(), torch.randn(4, 4).bfloat16()],
    "many": [torch.randn(*shape) for shape in MANY],
    "strided": [torch.randn(32, 64).T, torch.randn(64, 64)[::2, ::3]],
    "channels last": [torch.randn(8, 4, 3, 3).to(memory_format=torch.channels_last)],
    "some zero": [torch.zeros(4, 4), torch.randn(4, 4)],
    "all zero": [torch.zeros(4, 4), torch.zeros(3)],
    "infinite": [torch.tensor([1.0, float("inf")]), torch.randn(4)],
    "not a number": [torch.tensor([1.0, float("nan")]), torch.randn(4)],
    "empty": [torch.randn(0, 4), torch.randn(4)],
    "large": [torch.randn(300, 200)],
}


@pytest.mark.parametrize("moved", [None, "all", "every other", "none of the first"])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_both_ways_to_take_norms_make_the_same(kind: str, moved: str | None) -> None:
    weights = WEIGHTS[kind]
    touched = {
        None: None,
        "all": [True] * len(weights),
        "every other": [i % 2 == 1 or len(weights) == 1 for i in range(len(weights))],
        "none of the first": [i > 0 or len(weights) == 1 for i in range(len(weights))],
    }[moved]
    (ours, mine), (theirs, other) = both_branches(weights, 7.0, moved=touched)
    rtol = {"float64": 1e-14, "large": 4e-5}.get(kind, 1e-6)
    for a, b in zip(mine, other, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=rtol, atol=0.0, equal_nan=True)
    step = {torch.bfloat16: 2**-7, torch.float16: 2**-10}  # one rounding to either side
    for i, (a, b, before) in enumerate(zip(ours, theirs, weights, strict=True)):
        assert a.dtype == b.dtype == before.dtype
        assert a.stride() == b.stride()
        near = max(rtol, step.get(a.dtype, 0.0))
        torch.testing.assert_close(a, b, rtol=near, atol=0.0, equal_nan=True)
        if touched is not None and not touched[i]:
            torch.testing.assert_close(b, before, rtol=0.0, atol=0.0, equal_nan=True)


def test_nothing_is_brought_to_the_host() -> None:
    """Tensors on the meta device have no values: whatever asks for one fails."""
    weights = [torch.randn(8, 4, device="meta"), torch.randn(3, device="meta").bfloat16()]
    for moved in (None, [True, False]):
        seen = rescale_(weights, target=2.0, moved=moved)
        assert {part.device.type for part in seen} == {"meta"}
        assert (seen.norms.shape, seen.norm.shape, seen.factor.shape) == ((2,), (), ())
    with pytest.raises(RuntimeError, match="meta"):
        seen.factor.item()
    assert weight_norms([weights[0], torch.randn(3)]).device.type == "meta"  # two devices


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_no_step_of_the_hook_is_brought_to_the_host(kind: type[torch.optim.Optimizer]) -> None:
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    model.to("meta")
    model.conv1.requires_grad_(False)
    groups = fixnorm.param_groups(model)
    groups[0][TARGET] = 3.0  # as a loaded state has it; to measure it is to bring it to the host
    optimizer = kind(groups, lr=0.1)
    handle = fixnorm.attach(optimizer, angle_every=1)
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        model.bn1.weight.grad = model.conv2.weight.grad = None
        optimizer.step()
    with pytest.raises(RuntimeError, match="meta"):
        handle.figures()


@pytest.mark.parametrize("kind", WEIGHTS)
def test_norms_of_the_same_are_those_of_any(kind: str) -> None:
    weights = [weight.clone() for weight in WEIGHTS[kind]]
    again = plain_norms.NormsOfTheSame()
    for _ in range(2):
        expected = plain_norms.plain_norms(weights)
        torch.testing.assert_close(again(weights), expected, rtol=0, atol=0, equal_nan=True)
        for weight in weights:
            weight.mul_(3)  # in place, as a step does


def test_norms_of_the_same_see_that_a_weight_is_another() -> None:
    weight = torch.nn.Parameter(torch.randn(300, 200))
    norms = plain_norms.NormsOfTheSame()
    norms([weight])

    whole = weight.data
    for other in (torch.randn(300, 200), whole[:200], whole.double(), whole):
        weight = torch.nn.Parameter(weight.data)
        weight.data = other  # whole[:200] begins where the whole does
        torch.testing.assert_close(norms([weight]), plain_norms.plain_norms([weight]))
