"""DDP and FSDP2 end with the weights of one process. Two gloo processes each."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import fixnorm
from fixnorm.groups import kept_norm
from fixnorm.norm import local
from fixnorm.telemetry import Figures
from helpers.runs import ranks, shared_nursery
from helpers.small_nets import GroupNet, learnable_batches, true_norm

STEPS, WORLD = 6, 2


def make(scope: Any = "global") -> GroupNet:
    torch.manual_seed(0)
    model = GroupNet()
    fixnorm.convert(model, alpha=0.6, scope=scope)
    return model


def optimizer_for(model: nn.Module, scope: Any = "global") -> torch.optim.Optimizer:
    groups = fixnorm.param_groups(model, scope=scope)
    lr = {"global": 0.3, "layer": 1.0, "matrix": 0.1}[scope]
    return torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=True, foreach=False)


def attach(optimizer: torch.optim.Optimizer, scope: str, **options: Any) -> fixnorm.Handle:
    """The scope ``"layer"`` goes with a learning rate that follows from all gradients."""
    if scope != "layer":
        return fixnorm.attach(optimizer, **options)
    return fixnorm.attach(optimizer, lr="auto", steps=2 * STEPS, **options)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    rank: int = 0,
    world: int = 1,
    first: int = 0,
) -> None:
    for i, (x, y) in enumerate(learnable_batches(STEPS)[first:]):
        part = slice(rank, None, world)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[part]), y[part]).backward()
        step(model, optimizer, still=i % 3 == 1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, *, still: bool) -> None:
    """A step; ``still``: one that a weight has no gradient in, and so must not be moved by."""
    weight = getattr(model, "module", model).conv1.weight
    if still:
        weight.grad = None
    before = local(weight).clone()
    optimizer.step()
    assert not weight.numel() or torch.equal(local(weight), before) == still


def full(model: nn.Module) -> dict[str, Tensor]:
    return {
        name.removeprefix("module."): t.full_tensor() if isinstance(t, DTensor) else t
        for name, t in model.state_dict().items()
    }


def _ddp(rank: int, results: Path, scope: str) -> None:
    model = make(scope)
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = optimizer_for(wrapped, scope)
    attach(optimizer, scope)
    train(wrapped, optimizer, rank=rank, world=WORLD)
    torch.save(full(wrapped), results / f"{rank}.pt")


def _fsdp(rank: int, results: Path, scope: str) -> None:
    mesh = init_device_mesh("cpu", (WORLD,))
    model = make(scope)
    fully_shard(model.conv1, mesh=mesh)
    fully_shard(model, mesh=mesh)
    # 7 rows over two processes is uneven, the gate's single row leaves the second one empty
    sizes = [p.to_local().shape[0] for p in (model.conv1.weight, model.gate.weight)]
    assert sizes == ([4, 1] if rank == 0 else [3, 0])
    optimizer = optimizer_for(model, scope)
    handle = attach(optimizer, scope, angle_every=1)
    train(model, optimizer, rank=rank, world=WORLD)
    torch.save(full(model), results / f"{rank}.pt")
    torch.save(handle.figures().to_dict(), results / f"figures{rank}.pt")
    expected = fixnorm.fold_state_dict(full(model), alpha=0.6, head="fc")
    folded = fixnorm.fold_state_dict(model.state_dict())  # of shards; it says its cap
    assert folded.keys() == full(fixnorm.fold(model)).keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(folded[name].full_tensor(), tensor)
        torch.testing.assert_close(full(model)[name], tensor)


def _mixed(rank: int, results: Path, scope: str) -> None:
    """Only one layer is sharded: plain and sharded weights in one group."""
    mesh = init_device_mesh("cpu", (WORLD,))
    model = make(scope)
    fully_shard(model.conv2, mesh=mesh)
    optimizer = optimizer_for(model, scope)
    attach(optimizer, scope)
    kinds = {type(p.data) for p in optimizer.param_groups[0]["params"]}
    assert len(kinds) == (1 if scope == "layer" else 2)
    for i, (x, y) in enumerate(learnable_batches(STEPS)):  # plain weights: all on every rank
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        step(model, optimizer, still=i % 3 == 1)
    torch.save(full(model), results / f"{rank}.pt")


def _hybrid(rank: int, results: Path, scope: str) -> None:
    """A mesh of two dimensions: replicated over one, sharded over the other."""
    mesh = init_device_mesh("cpu", (1, WORLD), mesh_dim_names=("replica", "shard"))
    model = make(scope)
    fully_shard(model, mesh=mesh)
    optimizer = optimizer_for(model, scope)
    attach(optimizer, scope)
    train(model, optimizer, rank=rank, world=WORLD)
    torch.save(full(model), results / f"{rank}.pt")


def _checkpoint(rank: int, results: Path, scope: str) -> None:
    """Save sharded after half the steps, load into another start, go on."""
    mesh = init_device_mesh("cpu", (WORLD,))
    pairs = []
    for seed in (0, 1):
        model = make(scope)
        if seed:
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(1.5)
        fully_shard(model, mesh=mesh)
        optimizer = optimizer_for(model, scope)
        attach(optimizer, scope)
        pairs.append((model, optimizer))
    saved, resumed = pairs
    train(*saved, rank=rank, world=WORLD)
    # six steps are done; keep the state and do the same six again on both
    model_state, optimizer_state = get_state_dict(*saved)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=results / "dcp")
    model_state, optimizer_state = get_state_dict(*resumed)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(state, checkpoint_id=results / "dcp")
    set_state_dict(*resumed, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    kept = kept_norm(saved[1].param_groups[0])
    assert kept is not None
    assert kept_norm(resumed[1].param_groups[0]) == kept
    for pair in pairs:
        train(*pair, rank=rank, world=WORLD)
    a, b = full(saved[0]), full(resumed[0])
    assert all(torch.equal(a[name], b[name]) for name in a)
    torch.save(a, results / f"{rank}.pt")


JOBS = {"ddp": _ddp, "fsdp": _fsdp, "mixed": _mixed, "hybrid": _hybrid, "checkpoint": _checkpoint}


def _process(job: str, results: str, scope: str) -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=f"file://{results}/rendezvous", rank=rank, world_size=WORLD
    )
    JOBS[job](rank, Path(results), scope)
    dist.barrier()  # nobody leaves while another still talks to it
    os._exit(0)  # what counts is on disk; taking gloo's threads down aborts once in many times


def run(job: str, folder: Path, scope: str) -> list[dict[str, Tensor]]:
    for life in ranks(shared_nursery(), [job, str(folder), scope], program=Path(__file__)):
        assert life.wait() == 0, life.said()
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]


def one_process(scope: str) -> tuple[dict[str, Tensor], Figures]:
    model = make(scope)
    optimizer = optimizer_for(model, scope)
    handle = attach(optimizer, scope, angle_every=1)
    before = true_norm(optimizer.param_groups[0]["params"])
    train(model, optimizer)
    assert true_norm(optimizer.param_groups[0]["params"]) == pytest.approx(before, rel=1e-6)
    return full(model), handle.figures()


@pytest.mark.slow
@pytest.mark.tried(
    "Features of torch",
    "DDP; FSDP2, also of some layers only and on a mesh of two dimensions",
    "works",
    "`attach` after `fully_shard`",
)
@pytest.mark.parametrize("scope", ["global", "layer", "matrix"])
@pytest.mark.parametrize("job", ["ddp", "fsdp", "mixed", "hybrid"])
def test_same_weights_as_one_process(tmp_path: Path, job: str, scope: str) -> None:
    first, second = run(job, tmp_path, scope)
    alone, figures = one_process(scope)
    start = make(scope).state_dict()
    for name, expected in alone.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], expected, rtol=1e-5, atol=1e-6)
        assert not torch.equal(expected, start[name]), name
    if job == "fsdp":
        sharded = torch.load(tmp_path / "figures1.pt", weights_only=True)
        expected = figures.to_dict()
        assert expected["weights"] or expected["matrices"]
        for name, figure in (expected["weights"] | expected["matrices"]).items():
            found = sharded["weights"] | sharded["matrices"]
            assert found[name] == pytest.approx(figure, rel=1e-3)
        for name, figure in expected["heads"].items():
            assert sharded["heads"][name].pop("g") == pytest.approx(figure.pop("g"), rel=1e-4)
            assert sharded["heads"][name] == figure


@pytest.mark.slow
@pytest.mark.tried("Features of torch", "`torch.distributed.checkpoint`", "works")
@pytest.mark.parametrize("scope", ["global", "layer", "matrix"])
def test_sharded_checkpoint_keeps_the_target(tmp_path: Path, scope: str) -> None:
    first, second = run("checkpoint", tmp_path, scope)
    assert all(torch.equal(first[name], second[name]) for name in first)


if __name__ == "__main__":
    _process(*sys.argv[1:])
