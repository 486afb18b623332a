"""Averages of weights: how far inside the sphere they lie, and the way back."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import (
    AveragedModel,
    get_ema_multi_avg_fn,
    get_swa_multi_avg_fn,
)

import fixnorm
from fixnorm.averages import measure_average, project_average_
from fixnorm.batch_statistics import update_statistics_
from fixnorm.groups import TARGET
from helpers.small_nets import GroupNet, ResNet, changed, learnable_batches, state, true_norm

EMA, SWA = get_ema_multi_avg_fn(0.9), get_swa_multi_avg_fn()


class TwoNorms(nn.Module):
    """Two fixed weights and a plain head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.second(self.norm(self.first(x)))))


def put(weight: Tensor, row: int, value: float) -> None:
    """All of the weight's length on one entry of the diagonal."""
    with torch.no_grad():
        weight.zero_()[row, row] = value


def by_hand(scope: Any = "global") -> tuple[TwoNorms, torch.optim.SGD]:
    """The first weight has norm 3, the second 4: together 5."""
    model = TwoNorms()
    groups = fixnorm.param_groups(model, method="algorithm1", scope=scope, sample=torch.randn(8, 4))
    put(model.first.weight, 0, 3.0)
    put(model.second.weight, 0, 4.0)
    optimizer = torch.optim.SGD(groups, lr=0.1)
    fixnorm.attach(optimizer)
    return model, optimizer


def timm_average(model: nn.Module) -> Any:
    from timm.utils.model_ema import ModelEmaV3

    return ModelEmaV3(model, decay=0.7)


def trained(
    model: nn.Module, average: str, *, dtype: torch.dtype = torch.float64
) -> tuple[Any, torch.optim.Optimizer]:
    """The model after six steps, with an average of all of them."""
    model.to(dtype)
    for module in model.modules():
        if hasattr(module, "eps"):
            module.eps = 1e-30
    fixnorm.convert(model, alpha=1.0, sample=torch.randn(8, 3, 12, 12))
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.5, momentum=0.9)
    fixnorm.attach(optimizer)
    kinds = {
        "ema": lambda: AveragedModel(model, multi_avg_fn=EMA),
        "swa": lambda: AveragedModel(model, multi_avg_fn=SWA),
        "timm": lambda: timm_average(model),
    }
    mean = kinds[average]()
    for step, (x, y) in enumerate(learnable_batches(6)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(dtype)), y).backward()
        optimizer.step()
        if average == "timm":
            mean.update(model, step=step)
        else:
            mean.update_parameters(model)
    return mean, optimizer


def test_mean_of_two_points_at_right_angles() -> None:
    model, optimizer = by_hand()
    average = AveragedModel(model, multi_avg_fn=SWA)
    average.update_parameters(model)
    put(model.first.weight, 1, 3.0)
    put(model.second.weight, 1, 4.0)
    average.update_parameters(model)
    (found,) = measure_average(average, optimizer)
    assert found.names == ("first.weight", "second.weight")
    assert found.target == 5.0
    assert found.norm == pytest.approx(5 / math.sqrt(2))
    assert found.ratio == pytest.approx(1 / math.sqrt(2))

    assert project_average_(average, optimizer) == (found,)
    assert measure_average(average, optimizer)[0].ratio == pytest.approx(1.0)
    expected = torch.diag(torch.tensor([1.0, 1.0, 0.0, 0.0])) / math.sqrt(2)
    torch.testing.assert_close(average.module.first.weight, 3 * expected)
    torch.testing.assert_close(average.module.second.weight, 4 * expected)


def test_each_group_has_its_own_target() -> None:
    model, optimizer = by_hand(scope="layer")
    average = AveragedModel(model, multi_avg_fn=EMA)
    average.update_parameters(model)
    put(model.first.weight, 1, 3.0)  # the second weight stays where it is
    average.update_parameters(model)
    first, second = project_average_(average, optimizer)
    assert (first.target, second.target) == (3.0, 4.0)
    assert first.norm == pytest.approx(3 * math.hypot(0.9, 0.1))
    assert second.ratio == pytest.approx(1.0)
    assert true_norm([average.module.first.weight]) == pytest.approx(3.0)
    assert true_norm([average.module.second.weight]) == pytest.approx(4.0)


@pytest.mark.tried(
    "Features of torch", "EMA and SWA averages", "how to", "`fixnorm.averages.project_average_`"
)
@pytest.mark.parametrize("kind", ["ema", "swa", "timm"])
@pytest.mark.parametrize("net", [GroupNet, ResNet])
def test_averages_of_a_training(net: type[nn.Module], kind: str) -> None:
    model = net()
    average, optimizer = trained(model, kind)
    fixed = optimizer.param_groups[0]["params"]
    names = {name for name, p in model.named_parameters() if any(p is q for q in fixed)}
    weights = [p for name, p in average.module.named_parameters() if name in names]
    (found,) = measure_average(average, optimizer)
    assert set(found.names) == names
    assert found.norm == pytest.approx(true_norm(weights), rel=1e-12)
    assert 0.3 < found.ratio < 0.9999

    before, theirs = state(average.module), state(model)
    x = torch.randn(8, 3, 12, 12, dtype=torch.float64)
    outputs = copy.deepcopy(average).train()(x)
    project_average_(average, optimizer)
    assert true_norm(weights) == pytest.approx(found.target, rel=1e-12)
    torch.testing.assert_close(copy.deepcopy(average).train()(x), outputs, rtol=1e-10, atol=1e-12)
    assert changed(before, average.module) == names  # not g, not a bias, not a statistic
    assert changed(theirs, model) == set()


def test_evaluation_does_not_depend_on_the_projection_once_statistics_are_taken() -> None:
    model = ResNet()
    average, optimizer = trained(model, "swa")
    batches = [x.double() for x, _ in learnable_batches(4)]
    inside, outside = copy.deepcopy(average).eval(), average.eval()
    project_average_(outside, optimizer)
    x = batches[0]
    apart = (inside(x) - outside(x)).abs().max()
    assert apart > 1e-3  # the old statistics are of weights of another scale
    for module in (inside, outside):
        assert update_statistics_(module, batches) == 3
    torch.testing.assert_close(inside(x), outside(x), rtol=1e-9, atol=1e-11)


def test_training_goes_on_at_the_old_effective_rate_only_from_the_sphere() -> None:
    model = GroupNet()
    average, optimizer = trained(model, "ema")
    target = optimizer.param_groups[0][TARGET]

    def target_of_a_new_optimizer() -> float:
        model.load_state_dict(average.module.state_dict())
        again = torch.optim.SGD(fixnorm.param_groups(model), lr=0.5)
        fixnorm.attach(again)
        return float(again.param_groups[0][TARGET])

    (found,) = measure_average(average, optimizer)
    assert target_of_a_new_optimizer() == pytest.approx(found.ratio * target)
    project_average_(average, optimizer)
    assert target_of_a_new_optimizer() == pytest.approx(target)


def test_what_is_no_average_of_the_model_is_refused() -> None:
    _model, optimizer = by_hand()
    with pytest.raises(ValueError, match=r"the average has no parameter first\.weight"):
        measure_average(nn.Linear(4, 4), optimizer)
    wide = TwoNorms()
    wide.second = nn.Linear(4, 5, bias=False)
    with pytest.raises(ValueError, match=r"second\.weight has shape \(5, 4\) in the average but"):
        measure_average(wide, optimizer)
    early = AveragedModel(TwoNorms())
    converted = TwoNorms()
    fixnorm.convert(converted, alpha=1.0, sample=torch.randn(8, 4))
    late = torch.optim.SGD(fixnorm.param_groups(converted), lr=0.1)
    fixnorm.attach(late)
    with pytest.raises(ValueError, match=r"no parameter head\.g.*average after fixnorm\.convert"):
        project_average_(early, late)


def test_optimizers_without_a_sphere_are_refused() -> None:
    model, _ = by_hand()
    with pytest.raises(ValueError, match="the optimizer has no fixed group"):
        measure_average(model, torch.optim.SGD(model.parameters(), lr=0.1))
    groups = fixnorm.param_groups(model, method="algorithm1", sample=torch.randn(8, 4))
    with pytest.raises(ValueError, match=r"no target norm yet: call fixnorm\.attach"):
        measure_average(model, torch.optim.SGD(groups, lr=0.1))
    strangers = [{"params": [nn.Parameter(torch.ones(2, 2))], TARGET: 1.0}]
    with pytest.raises(ValueError, match=r"have no names: build it from fixnorm\.param_groups"):
        measure_average(model, torch.optim.SGD(strangers, lr=0.1))


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_an_average_without_a_direction_is_refused(value: float) -> None:
    model, optimizer = by_hand(scope="layer")
    average = copy.deepcopy(model)
    with torch.no_grad():
        average.first.weight.mul_(2)
        average.second.weight.fill_(value)
    before = state(average)
    with pytest.raises(ValueError, match=r"\(second\.weight, …\) has norm (0\.0|nan)"):
        project_average_(average, optimizer)
    assert torch.equal(average.first.weight, before["first.weight"])
