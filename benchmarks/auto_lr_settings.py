"""What the rule of the sphere is chosen on, and what it is judged on.

Split before the first training: the constants and the form of the rule are chosen on
:data:`CHOOSING` alone, and every claim is about :data:`JUDGING` alone. :data:`SHORT` shows where
the rule ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["cifar10", "cifar10-16", "tiny-imagenet", "tiny-imagenet-32", "digits"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is trained: a net, images, and how long."""

    name: str
    net: str
    source: Source
    per_class: int
    epochs: int
    batch: int
    momentum: float = 0.9
    warmup: float = 0.1
    """Share of the steps."""
    classes: int = 10
    bf16: bool = False
    """Whether forward passes of training are autocast."""


CHOOSING = (
    Setting(name="resnet8", net="resnet8", source="cifar10", per_class=500, epochs=10, batch=128),
    Setting(
        name="short", net="resnet8-w8", source="cifar10-16", per_class=500, epochs=3, batch=128
    ),
    Setting(
        name="2500-steps", net="resnet8-w8", source="cifar10-16", per_class=2000, epochs=4, batch=32
    ),
    Setting(
        name="10000-steps",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=2000,
        epochs=16,
        batch=32,
    ),
    Setting(
        name="batch-512", net="resnet8", source="cifar10-16", per_class=1000, epochs=10, batch=512
    ),
    Setting(
        name="mobile",
        net="micronet-mobilenetv2",
        source="cifar10",
        per_class=300,
        epochs=10,
        batch=128,
    ),
    Setting(name="digits", net="digits-resnet", source="digits", per_class=60, epochs=15, batch=64),
    Setting(
        name="no-momentum",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=500,
        epochs=15,
        batch=64,
        momentum=0.0,
    ),
    Setting(
        name="momentum-0.5",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=500,
        epochs=15,
        batch=64,
        momentum=0.5,
    ),
    Setting(
        name="momentum-0.9",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=500,
        epochs=15,
        batch=64,
        momentum=0.9,
    ),
    Setting(
        name="momentum-0.97",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=500,
        epochs=15,
        batch=64,
        momentum=0.97,
    ),
    Setting(
        name="no-warmup",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=500,
        epochs=15,
        batch=64,
        warmup=0.0,
    ),
)
JUDGING = (
    Setting(
        name="4-wide", net="resnet8-w4", source="cifar10-16", per_class=500, epochs=20, batch=64
    ),
    Setting(name="16-wide", net="resnet8", source="cifar10-16", per_class=500, epochs=20, batch=64),
    Setting(
        name="32-wide", net="resnet8-w32", source="cifar10-16", per_class=300, epochs=12, batch=64
    ),
    Setting(
        name="resnet20", net="resnet20-w8", source="cifar10-16", per_class=500, epochs=15, batch=128
    ),
    Setting(
        name="resnet14d",
        net="resnet14d-w8",
        source="cifar10-16",
        per_class=500,
        epochs=15,
        batch=64,
    ),
    Setting(name="se", net="micronet-se", source="cifar10", per_class=300, epochs=10, batch=64),
    Setting(
        name="mobile-long",
        net="micronet-mobilenetv2",
        source="cifar10",
        per_class=200,
        epochs=30,
        batch=64,
    ),
    Setting(
        name="batch-32", net="resnet8-w8", source="cifar10-16", per_class=1000, epochs=8, batch=32
    ),
    Setting(
        name="batch-1024",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=2000,
        epochs=15,
        batch=1024,
    ),
    Setting(
        name="100-steps", net="resnet8-w8", source="cifar10-16", per_class=640, epochs=1, batch=64
    ),
    Setting(
        name="100-epochs",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=100,
        epochs=100,
        batch=32,
    ),
    Setting(
        name="20000-steps",
        net="resnet8-w4",
        source="cifar10-16",
        per_class=2000,
        epochs=16,
        batch=16,
    ),
    Setting(
        name="plain-sgd",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=1000,
        epochs=10,
        batch=64,
        momentum=0.0,
    ),
    Setting(
        name="cold-start",
        net="resnet8",
        source="cifar10-16",
        per_class=300,
        epochs=12,
        batch=32,
        warmup=0.0,
    ),
    Setting(
        name="tiny-imagenet",
        net="resnet8-s2",
        source="tiny-imagenet",
        per_class=50,
        epochs=20,
        batch=64,
        classes=50,
    ),
    Setting(
        name="digits-long", net="digits-resnet", source="digits", per_class=30, epochs=60, batch=32
    ),
)
SHORT = tuple(
    Setting(
        name=f"{steps}-steps",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=-(-steps * 64 // 10),
        epochs=1,
        batch=64,
    )
    for steps in (12, 25, 50)
)
"""How short a training may be: neither for choosing nor for judging."""
