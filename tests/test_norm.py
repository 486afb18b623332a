"""The joint norm and the rescale, on numbers a person can work out."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fixnorm import plain_norms
from fixnorm.norm import Joint, frobenius, joint_norm, rescale_, rescale_each_, weight_norms


@pytest.fixture(autouse=True, params=["one by one", "at once"])
def branch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test here runs both ways to take norms; ``at once`` is that of GPUs."""
    if request.param == "at once":
        monkeypatch.setattr(plain_norms, "_LOOPING", ())
        monkeypatch.setattr(plain_norms, "_norms_in_blocks", None)
    return request.param


def test_rescale_by_hand() -> None:
    a, b = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]])  # ‖(a, b)‖ = 5
    seen = rescale_([a, b], target=10.0)
    assert seen.norms.tolist() == [3.0, 4.0]
    assert seen.norm.item() == 5.0
    assert seen.factor.item() == 2.0
    assert a.tolist() == [[6.0, 0.0]]
    assert b.tolist() == [[0.0, 8.0]]


def test_a_group_at_its_target_is_left_bit_for_bit() -> None:
    weights = [torch.randn(300, 200), torch.randn(7), torch.randn(16, 8, 3, 3)]
    before = [w.clone() for w in weights]
    rescale_(weights, target=joint_norm(weights).item())
    assert all(torch.equal(w, b) for w, b in zip(weights, before, strict=True))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 2e-7), (torch.bfloat16, 4e-3)]
)
def test_accuracy_on_weights_of_all_sizes(
    dtype: torch.dtype, tolerance: float, branch: str
) -> None:
    if branch == "at once":  # on a CPU it is one running sum for each weight
        tolerance = max(tolerance, 4e-5 if dtype == torch.float32 else 0)
    weights = [torch.randn(2048, 1000), torch.randn(512, 512, 3, 3), torch.randn(9, 1, 3, 3)]
    weights[1] = weights[1].to(memory_format=torch.channels_last)
    weights = [w.to(dtype) for w in weights]
    rescale_(weights, target=7.0)
    exact = sum(w.double().square().sum().item() for w in weights) ** 0.5
    assert exact == pytest.approx(7.0, rel=tolerance)


def test_norms_of_half_precision_are_summed_in_float32(branch: str) -> None:
    weights = [
        torch.full((200, 200), 0.1, dtype=torch.float16),
        torch.ones(4, dtype=torch.bfloat16),
    ]
    norms = weight_norms(weights)
    assert norms.dtype == torch.float32
    near = 1e-6 if branch == "one by one" else 4e-5
    assert norms.tolist() == pytest.approx([0.09997558594 * 200, 2.0], rel=near)


def test_mixed_dtypes_keep_theirs() -> None:
    weights = [torch.ones(4), torch.ones(4, dtype=torch.float64), torch.ones(8, 1)]
    rescale_(weights, target=2.0)  # ‖W‖ = 4
    assert [w.dtype for w in weights] == [torch.float32, torch.float64, torch.float32]
    assert all(torch.allclose(w, torch.full_like(w, 0.5), rtol=1e-7) for w in weights)


def test_several_spheres_at_once_are_each_by_itself() -> None:
    def joints() -> list[Joint]:
        torch.manual_seed(3)
        weights = [torch.randn(300, 200), torch.randn(7), torch.randn(16, 8, 3, 3).bfloat16()]
        more = [torch.randn(5, 5), torch.randn(6).double(), torch.randn(4, 4)]
        return [
            Joint(weights, 2.0),
            Joint(more[:1], 3.0, [True]),
            Joint(more[1:], 4.0, [False, True]),
        ]

    together, alone = joints(), joints()
    seen = rescale_each_(together)
    for joint, other, one in zip(together, alone, seen, strict=True):
        expected = rescale_(other.weights, other.target, moved=other.moved)
        for a, b in zip((*one, *joint.weights), (*expected, *other.weights), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=0.0, check_dtype=False)


def test_a_weight_that_is_channels_last_is_summed_as_it_lies_in_memory() -> None:
    weight = torch.randn(64, 64, 3, 3)
    last = weight.to(memory_format=torch.channels_last).requires_grad_()
    assert plain_norms._blocks(last).shape == plain_norms._blocks(weight).shape == (9,)
    frobenius(last).backward()
    torch.testing.assert_close(last.grad, last.detach() / weight.norm())


class _LargestAllocation(TorchDispatchMode):
    """The most elements any new tensor has; views and in-place results do not count."""

    def __init__(self, known: list[torch.Tensor]) -> None:
        super().__init__()
        self.known = {w.untyped_storage().data_ptr() for w in known}
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for t in torch.utils._pytree.tree_leaves(out):
            if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() not in self.known:
                self.largest = max(self.largest, t.numel())
        return out


def test_no_temporary_is_larger_than_the_norms_of_blocks() -> None:
    weights = [torch.randn(64, 4000), torch.randn(64, 64, 3, 3)]
    weights[1] = weights[1].to(memory_format=torch.channels_last)
    with _LargestAllocation(weights) as watch:
        rescale_(weights, target=1.0)
    assert watch.largest <= 125  # 64·4000 elements in blocks of 2048
