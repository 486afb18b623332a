"""What the tests of all frameworks share: a net, its images, and a count of what the hook does."""

from __future__ import annotations

import importlib.util
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import fixnorm
from fixnorm import hook, norm
from fixnorm.groups import TARGET
from fixnorm.plain_norms import NormsOfTheSame
from helpers.forked import run_forked
from helpers.small_nets import true_norm

IMAGES, CLASSES = 32, 4


def net(*, seed: int = 0) -> nn.Sequential:
    """A few hundred weights, converted."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, CLASSES),
    )  # fmt: skip
    fixnorm.convert(model, alpha=1.0, sample=torch.randn(4, 3, 8, 8))
    return model


def images() -> TensorDataset:
    """Noisy copies of one image a class."""
    generator = torch.Generator().manual_seed(7)
    y = torch.arange(IMAGES) % CLASSES
    x = torch.randn(CLASSES, 3, 8, 8, generator=generator)[y]
    return TensorDataset(x + 0.5 * torch.randn(x.shape, generator=generator), y)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y)


class Rescales:
    """Every rescale that a hook did: the target, and the joint norm right after it."""

    def __init__(self) -> None:
        self.targets: list[float] = []
        self.norms: list[float] = []

    @property
    def count(self) -> int:
        return len(self.targets)


@contextmanager
def rescales() -> Iterator[Rescales]:
    """Watch the hook do its work."""
    seen, do = Rescales(), hook.rescale_each_

    def watched(joints: list[norm.Joint], measure: NormsOfTheSame) -> list[norm.Rescaled]:
        done = do(joints, measure)
        seen.targets += [joint.target for joint in joints]
        seen.norms += [true_norm(joint.weights) for joint in joints]
        return done

    hook.rescale_each_ = watched
    try:
        yield seen
    finally:
        hook.rescale_each_ = do


def need_ray() -> Any:
    """As our engine imports it: what it prints is settled by the first import of a process."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")
    from fixnorm.tuning import ray_engine

    return ray_engine._imported()


def fixed_of(optimizer: torch.optim.Optimizer) -> tuple[float, list[Tensor]]:
    """The target and the weights of the one fixed group."""
    (group,) = [group for group in optimizer.param_groups if TARGET in group]
    return group[TARGET], group["params"]


def run(script: str, *arguments: object, expect: int = 0) -> str:
    """Run a script of this folder, its words beside what it writes; ``-9`` kills itself."""
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here.parent), os.environ.get("PYTHONPATH", "")])
    env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": paths}
    words = list(map(str, arguments))
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log"
        code = run_forked(here / script, words, log=log, env=env)
        said = log.read_text()
    assert code == expect, said
    return said


def assert_goes_on(killed: Path, whole: Path, *, steps: int, left: int) -> None:
    """A run that was killed and resumed ended as the whole one did, in the steps that were left."""
    end, expected = (torch.load(file, weights_only=True) for file in (killed, whole))
    assert expected["targets"] == [expected["target"]] * steps
    assert end["targets"] == [expected["target"]] * left
    assert end["norm"] == pytest.approx(expected["target"], rel=1e-6)
    for name, value in expected["weights"].items():
        assert torch.equal(end["weights"][name], value), name


def die() -> None:
    """As a power cut would have it."""
    os.kill(os.getpid(), signal.SIGKILL)
