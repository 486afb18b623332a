"""Small nets that several test files train."""

from __future__ import annotations

import torch
from torch import Tensor, nn

IMAGES = (8, 3, 12, 12)
CLASSES = 5


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, 4, 1)
        self.expand = nn.Conv2d(4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.expand(torch.relu(self.reduce(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(gate)


class ResNet(nn.Module):
    """A stem, a residual block and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))
        return self.fc(x.mean((2, 3)))


class MobileNet(nn.Module):
    """An inverted residual: expand, depthwise, project; with SE and SiLU if asked for."""

    def __init__(self, *, tricks: bool = False) -> None:
        super().__init__()
        act: type[nn.Module] = nn.SiLU if tricks else nn.ReLU6
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), act())
        self.block = nn.Sequential(
            nn.Conv2d(8, 24, 1, bias=False),
            nn.BatchNorm2d(24),
            act(),
            nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False),
            nn.BatchNorm2d(24),
            act(),
            SqueezeExcite(24) if tricks else nn.Identity(),
            nn.Conv2d(24, 8, 1, bias=False),
            nn.BatchNorm2d(8),
        )
        self.classifier = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.classifier((x + self.block(x)).mean((2, 3)))


class GroupNet(nn.Module):
    """Norms that look at one example only, so that a batch may be split over processes.

    The first axis of its weights (7, 3, 5) does not divide by two, and 3 rows leave a process of
    four without any.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 7, 3, bias=False)
        self.norm1 = nn.GroupNorm(1, 7)
        self.conv2 = nn.Conv2d(7, 3, 3, bias=False)
        self.norm2 = nn.GroupNorm(1, 3)
        self.gate = nn.Conv2d(3, 1, 1)
        self.fc = nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.nn.functional.silu(self.norm1(self.conv1(x)))
        x = torch.nn.functional.silu(self.norm2(self.conv2(x)))
        return self.fc((x * torch.sigmoid(self.gate(x))).mean((2, 3)))


class PatchNet(nn.Module):
    """A transformer on patches: no weight of it is scale-free."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.places = nn.Parameter(0.1 * torch.randn(9, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).mT + self.places
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        x = x + self.proj(nn.functional.scaled_dot_product_attention(q, k, v))
        x = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return self.fc(self.norm(x).mean(1))


def learnable_batches(count: int, shape: tuple[int, ...] = IMAGES) -> list[tuple[Tensor, Tensor]]:
    """Noisy copies of one image a class."""
    generator = torch.Generator().manual_seed(7)
    classes = torch.randn(CLASSES, *shape[1:], generator=generator)
    batches = []
    for _ in range(count):
        y = torch.randint(0, CLASSES, (shape[0],), generator=generator)
        batches.append((classes[y] + 0.5 * torch.randn(shape, generator=generator), y))
    return batches


def true_norm(tensors: list[Tensor]) -> float:
    """The joint norm, summed in float64."""
    return sum(t.detach().double().square().sum().item() for t in tensors) ** 0.5


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def changed(before: dict[str, Tensor], module: nn.Module) -> set[str]:
    after = module.state_dict()
    return {name for name in before if not torch.equal(before[name], after[name])}
