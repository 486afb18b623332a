"""The moving average of a run: measured, and back on the sphere where the recipe wants it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from fixnorm.training import changed
from fixnorm.training.checkpoint import read
from fixnorm.training.weights import rebuild
from helpers.processes import train_by_two
from helpers.small_nets import true_norm
from helpers.small_runs import digits, small, trained, weights_of


def fixed(weights: dict[str, Tensor]) -> list[Tensor]:
    """Convolutions and the head's direction: all that has more than one dimension."""
    return [weight for weight in weights.values() if weight.ndim > 1]


def test_the_average_is_brought_back_and_has_its_own_statistics(tmp_path: Path) -> None:
    recipe = small(ema=0.5, ema_on_sphere=True)
    result = trained(recipe, tmp_path / "back")
    inside = trained(changed(recipe, ema_on_sphere=False), tmp_path / "inside")
    target = read(tmp_path / "back/checkpoints/step-000000006.ckpt")["optimizer"]["param_groups"][0]
    was, now = weights_of(tmp_path / "inside"), weights_of(tmp_path / "back")

    ratio = true_norm(fixed(was)) / target["fixnorm_target"]
    assert ratio < 0.9999
    assert result["detail"]["ema_ratio"] == pytest.approx(ratio, rel=1e-6)
    assert inside["detail"]["ema_ratio"] == pytest.approx(ratio, rel=1e-6)
    assert true_norm(fixed(now)) == pytest.approx(target["fixnorm_target"], rel=1e-6)
    for name, weight in was.items():
        if weight.ndim > 1:
            torch.testing.assert_close(now[name], weight / ratio, rtol=1e-5, atol=1e-6)

    model = rebuild(tmp_path / "back")  # torch's own pass over the next epoch's batches
    data = digits(recipe)
    update_bn((b.images for b in data.train.batches(epoch=3, batch_size=40)), model)
    statistics = [name for name in now if "running" in name]
    assert len(statistics) > 10
    for name in statistics:
        torch.testing.assert_close(now[name], model.state_dict()[name], rtol=1e-4, atol=1e-5)
        assert not torch.allclose(now[name], was[name], rtol=1e-3)
    (batch,) = data.val.eval_batches(batch_size=len(data.val))
    right = model.eval()(batch.images).argmax(1) == batch.labels
    assert result["accuracy"] == pytest.approx(100 * right.double().mean().item(), abs=1e-9)


def test_a_run_that_ends_again_is_not_settled_twice(tmp_path: Path) -> None:
    """Killed between its last checkpoint and its result."""
    recipe, out = small(ema=0.5, ema_on_sphere=True), tmp_path / "run"
    before, weights = trained(recipe, out), weights_of(out)
    (out / "result.json").unlink()
    (out / "weights.safetensors").unlink()
    after = trained(recipe, out)
    assert after["detail"] == before["detail"]
    assert all(torch.equal(weight, weights[name]) for name, weight in weights_of(out).items())


def test_no_average_no_ratio(tmp_path: Path) -> None:
    assert trained(small(), tmp_path / "run")["detail"] == {}
    assert trained(small(ema=0.5, method="weight-decay"), tmp_path / "decayed")["detail"] == {}


def test_a_norm_that_is_not_kept_is_no_sphere() -> None:
    with pytest.raises(ValueError, match="lacks a norm that is kept; set method=fixnorm"):
        small(ema=0.5, method="weight-decay", ema_on_sphere=True)


@pytest.mark.slow
def test_two_processes_share_their_statistics(tmp_path: Path) -> None:
    recipe, out = small(ema=0.5, ema_on_sphere=True), tmp_path / "run"
    train_by_two({out: recipe}, data=None, place=tmp_path)
    assert 0.9 < json.loads((out / "result.json").read_text())["detail"]["ema_ratio"] < 0.9999
    data = digits(recipe)
    shares = []
    for rank in range(2):
        model = rebuild(out)
        batches = data.train.batches(epoch=3, batch_size=40, rank=rank, world_size=2)
        update_bn((batch.images for batch in batches), model)
        shares.append(model.state_dict())
    weights = weights_of(out)
    for name in (name for name in weights if "running" in name):
        mean = (shares[0][name] + shares[1][name]) / 2
        torch.testing.assert_close(weights[name], mean, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(shares[0][name], shares[1][name], rtol=1e-3)
