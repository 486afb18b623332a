"""Running statistics of batch norms: by hand, as torch takes them, as before on failure."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from fixnorm.batch_statistics import update_statistics_
from helpers.small_nets import ResNet, changed, learnable_batches, state


def test_statistics_by_hand() -> None:
    norm = nn.BatchNorm1d(1, affine=False)
    batches = [torch.tensor([[1.0], [3.0]]), torch.tensor([[2.0], [4.0], [6.0], [8.0]])]
    assert update_statistics_(norm, batches) == 1
    # Means 2 and 5 over 2 and 4 values; unbiased variances 2 and 20/3.
    assert norm.running_mean.item() == pytest.approx((2 * 2 + 4 * 5) / 6)
    assert norm.running_var.item() == pytest.approx((2 * 2 + 4 * 20 / 3) / 6)


def test_equal_batches_give_what_torch_gives() -> None:
    batches = learnable_batches(3)
    ours = ResNet()
    theirs = copy.deepcopy(ours)
    before = state(ours)
    update_statistics_(ours, batches)
    update_bn(batches, theirs)
    for name, tensor in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor)
    assert changed(before, ours) == {
        f"{norm}.{name}"
        for norm in ("norm", "bn1", "bn2")
        for name in ("running_mean", "running_var", "num_batches_tracked")
    }


def test_modes_momenta_and_hooks_are_as_before_and_dropout_is_off() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(2, momentum=0.3), nn.BatchNorm1d(2))
    model.train()
    model[2].eval()
    model[2].momentum = None
    x = torch.randn(64, 2)
    update_statistics_(model, [x])
    torch.testing.assert_close(model[1].running_mean, x.mean(0))
    assert [m.training for m in model.modules()] == [True, True, True, False]
    assert (model[1].momentum, model[2].momentum) == (0.3, None)
    assert not model[1]._forward_pre_hooks


def test_a_layer_that_is_called_twice_counts_both() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(1)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x) + self.norm(x + 10)

    model = Twice()
    update_statistics_(model, [torch.tensor([[1.0], [3.0]])])
    assert model.norm.running_mean.item() == pytest.approx((2 + 12) / 2)


@pytest.mark.parametrize(
    ("wrap", "run"),
    [
        (lambda x: x, None),
        (lambda x: (x, torch.zeros(len(x))), None),
        (lambda x: [x], None),
        (lambda x: {"image": x}, lambda model, batch: model(batch["image"])),
    ],
    ids=["tensor", "tuple", "list", "dict"],
)
def test_kinds_of_batches(wrap: Any, run: Any) -> None:
    norm = nn.BatchNorm1d(1)
    update_statistics_(norm, [wrap(torch.tensor([[1.0], [3.0]]))], run=run)
    assert norm.running_mean.item() == pytest.approx(2.0)


def test_instance_norm_counts_and_data_is_not_touched_without_statistics() -> None:
    norm = nn.InstanceNorm1d(1, track_running_stats=True)
    update_statistics_(norm, [torch.tensor([[[1.0, 3.0]]])])
    assert norm.running_mean.item() == pytest.approx(2.0)

    def explode() -> Any:
        raise AssertionError("the data was touched")
        yield

    model = nn.Sequential(nn.LayerNorm(2), nn.BatchNorm1d(2, track_running_stats=False))
    assert update_statistics_(model, explode()) == 0


@pytest.mark.parametrize(
    ("batches", "run", "error", "message"),
    [
        ([], None, ValueError, "no batch to take the statistics of: pass a loader"),
        ([{"image": 1}], None, TypeError, "tuple that begins with one but got dict; pass run="),
        ([1], lambda model, batch: None, ValueError, "0 was not called in the pass"),
        ([torch.randn(4, 3)], None, RuntimeError, "running_mean should contain 3 elements"),
    ],
)
def test_a_failed_pass_leaves_the_statistics(
    batches: Any, run: Any, error: type[Exception], message: str
) -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)).eval()
    model(torch.randn(4, 2))
    model[0].running_mean.fill_(7.0)
    before = state(model)
    with pytest.raises(error, match=message):
        update_statistics_(model, batches, run=run)
    assert changed(before, model) == set()
    assert not model[0].training
