"""The target norm is saved and loaded exactly, and never silently measured again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

import fixnorm
from fixnorm.groups import TARGET
from helpers.small_nets import ResNet, learnable_batches, true_norm

Pair = tuple[ResNet, torch.optim.Optimizer]


def make(seed: int, scope: Any = "global") -> Pair:
    torch.manual_seed(seed)
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    optimizer = torch.optim.SGD(fixnorm.param_groups(model, scope=scope), lr=0.1, momentum=0.9)
    fixnorm.attach(optimizer)
    return model, optimizer


def train(pair: Pair, first: int, last: int) -> None:
    model, optimizer = pair
    for x, y in learnable_batches(last)[first:]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def targets(pair: Pair) -> list[float]:
    return [group[TARGET] for group in pair[1].param_groups if TARGET in group]


def assert_equal(a: Pair, b: Pair) -> None:
    for (name, p), q in zip(a[0].state_dict().items(), b[0].state_dict().values(), strict=True):
        assert torch.equal(p, q), name


@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("model_first", [True, False])
def test_torch_save_resumes_bit_for_bit(tmp_path: Path, scope: str, model_first: bool) -> None:
    whole, saved, resumed = make(0, scope), make(0, scope), make(1, scope)
    train(whole, 0, 8)
    train(saved, 0, 4)
    torch.save([saved[0].state_dict(), saved[1].state_dict()], tmp_path / "c.pt")
    model_state, optimizer_state = torch.load(tmp_path / "c.pt", weights_only=True)
    assert targets(resumed) != targets(saved)
    if model_first:
        resumed[0].load_state_dict(model_state)
        resumed[1].load_state_dict(optimizer_state)
    else:
        resumed[1].load_state_dict(optimizer_state)
        resumed[0].load_state_dict(model_state)
    assert targets(resumed) == targets(saved)
    train(resumed, 4, 8)
    assert_equal(resumed, whole)


def test_attach_after_load_takes_the_saved_target() -> None:
    saved = make(0)
    state = saved[1].state_dict()
    state["param_groups"][0][TARGET] = 12.5
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.1, momentum=0.9)
    optimizer.load_state_dict(state)
    fixnorm.attach(optimizer)
    assert optimizer.param_groups[0][TARGET] == 12.5
    train((model, optimizer), 0, 1)
    assert true_norm(optimizer.param_groups[0]["params"]) == pytest.approx(12.5, rel=1e-6)


@pytest.mark.filterwarnings("ignore:(torch.distributed is|TypedStorage is deprecated):UserWarning")
@pytest.mark.parametrize("flatten", [False, True])
def test_distributed_checkpoint(tmp_path: Path, flatten: bool) -> None:
    options = StateDictOptions(flatten_optimizer_state_dict=flatten)
    whole, saved, resumed = make(0), make(0), make(1)
    train(whole, 0, 8)
    train(saved, 0, 4)
    model_state, optimizer_state = get_state_dict(*saved, options=options)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=tmp_path)

    model_state, optimizer_state = get_state_dict(*resumed, options=options)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(state, checkpoint_id=tmp_path)
    set_state_dict(
        *resumed,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
        options=options,
    )
    assert targets(resumed) == targets(saved)
    assert_equal(resumed, saved)
    train(resumed, 4, 8)
    assert_equal(resumed, whole)


def test_safetensors_with_the_groups_as_json(tmp_path: Path) -> None:
    """Tensors as tensors, the groups in the header: everything in a group is plain JSON."""
    whole, saved, resumed = make(0), make(0), make(1)
    train(whole, 0, 8)
    train(saved, 0, 4)
    state = saved[1].state_dict()
    tensors = {f"model.{k}": v for k, v in saved[0].state_dict().items()}
    for i, slots in state["state"].items():
        tensors |= {f"optimizer.{i}.{k}": v for k, v in slots.items()}
    header = {"groups": json.dumps(state["param_groups"])}
    safetensors.torch.save_file(tensors, tmp_path / "c.safetensors", header)

    with safetensors.safe_open(tmp_path / "c.safetensors", "pt") as file:
        groups = json.loads(file.metadata()["groups"])
        loaded = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    slots: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in loaded.items():
        kind, _, rest = name.partition(".")
        if kind == "optimizer":
            index, key = rest.split(".")
            slots.setdefault(int(index), {})[key] = tensor
    resumed[0].load_state_dict(
        {n.removeprefix("model."): t for n, t in loaded.items() if n.startswith("model.")}
    )
    resumed[1].load_state_dict({"state": slots, "param_groups": groups})
    assert targets(resumed) == targets(saved)
    train(resumed, 4, 8)
    assert_equal(resumed, whole)


def test_a_state_without_target_is_refused_at_the_next_step() -> None:
    model, optimizer = make(0)
    state = optimizer.state_dict()
    del state["param_groups"][0][TARGET]  # as an optimizer without FixNorm would save it
    optimizer.load_state_dict(state)
    with pytest.raises(ValueError, match="fixed group 0 has lost its target norm"):
        train((model, optimizer), 0, 1)
