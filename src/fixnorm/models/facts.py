"""What is said of models where none is built: without torch."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CLASSIFIER", "PRETRAINED", "Counts"]

PRETRAINED = "pretrained"
"""In place of a file of weights: those that timm or torchvision download."""
CLASSIFIER = "head.classification_head.cls_logits"
"""The last conv of a detector's classification subnet: FixNorm's head."""


@dataclass(frozen=True)
class Counts:
    """What one image costs."""

    params: int
    conv_macs: int
    """Multiply-adds of all convolutions; timm's squeeze-and-excitation layers are 1×1 ones."""
    macs: int
    """Multiply-adds of all convolutions and matrix products: also the head and attention."""
