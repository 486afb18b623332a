"""MCBR of what goes through a model, by the input of its head.

A conv head is a classifier of every position: its feature is the patch under the kernel. A
detector's head is one classifier for each anchor shape, and only anchors on an object have a class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fixnorm.mcbr import MeanCrossBoundaryRisk
from fixnorm.models import HeadInput

__all__ = ["AnchorRisk", "Head", "ImageRisk", "NoRisk", "PixelRisk", "Risk"]

Head = nn.Linear | nn.Conv2d


class Risk(ABC):
    """Counts batches as they go through a model."""

    def __init__(self, device: torch.device) -> None:
        self.metric = MeanCrossBoundaryRisk(device=device)

    @abstractmethod
    def update(self, labels: Any) -> None:
        """Count the batch that has just gone through the model."""

    @abstractmethod
    def remove(self) -> None:
        """Take the hooks off the model."""


class NoRisk(Risk):
    """Of a model without a single head."""

    def update(self, labels: Any) -> None:
        """Nothing to count."""

    def remove(self) -> None:
        """No hook to take off."""


class ImageRisk(Risk):
    """Of a classifier of images; counts nothing where the head's features are not flat."""

    def __init__(self, head: Head, device: torch.device) -> None:
        super().__init__(device)
        self._head = head
        self._input = HeadInput(head, head=head)

    def update(self, labels: Tensor) -> None:
        """Labels: (B,)."""
        features = self._input.features
        if features.ndim == 2 and len(features) == len(labels):
            self.metric.update(features.float(), labels, self._head.weight.detach().flatten(1))

    def remove(self) -> None:
        """Take the hook off the head."""
        self._input.remove()


class PixelRisk(Risk):
    """Of a segmenter: every position of the head's map that has a class counts."""

    def __init__(self, head: nn.Conv2d, device: torch.device, *, ignored: int) -> None:
        super().__init__(device)
        self._head, self._ignored = head, ignored
        self._input = HeadInput(head, head=head)

    def update(self, labels: Tensor) -> None:
        """Labels: (B, H, W), of which the pixel nearest to each position is taken."""
        features = self._input.features
        features = features[..., None, None] if features.ndim == 2 else features
        size = list(features.shape[2:])
        nearest = F.interpolate(labels[:, None].float(), size=size, mode="nearest-exact")[:, 0]
        classes = nearest.long()
        image, row, column = (classes != self._ignored).nonzero(as_tuple=True)
        self.metric.update(
            patches(features, self._head, image, row, column),
            classes[image, row, column],
            self._head.weight.detach().flatten(1),
        )

    def remove(self) -> None:
        """Take the hook off the head."""
        self._input.remove()


class AnchorRisk(Risk):
    """Of torchvision's RetinaNet: every anchor that is matched with an object counts.

    The model has to be called with its targets, in evaluation mode as well.
    """

    def __init__(self, model: nn.Module, head: nn.Conv2d, device: torch.device) -> None:
        super().__init__(device)
        self._model = detector = cast(Any, model)
        self._head = head
        self._maps: list[Tensor] = []
        self._anchors: list[Tensor] = []
        self._targets: Sequence[dict[str, Tensor]] = ()
        self._handles = [
            detector.transform.register_forward_hook(self._keep_targets),
            detector.anchor_generator.register_forward_hook(self._keep_anchors),
            head.register_forward_pre_hook(self._keep_map),
        ]

    def _keep_targets(self, _: nn.Module, __: Any, output: tuple[Any, Any]) -> None:
        self._maps, self._targets = [], output[1] or ()  # a forward pass begins

    def _keep_anchors(self, _: nn.Module, __: Any, anchors: list[Tensor]) -> None:
        self._anchors = anchors

    def _keep_map(self, _: nn.Module, args: tuple[Tensor, ...]) -> None:
        self._maps.append(args[0].detach())

    def update(self, labels: Any) -> None:
        """Count the anchors; boxes and classes are those the model was called with."""
        shapes = self._model.anchor_generator.num_anchors_per_location()[0]
        weight = self._head.weight.detach().unflatten(0, (shapes, -1)).flatten(2)
        classes = [self._classes(k) for k in range(len(self._anchors))]
        first = 0
        for level in self._maps:
            height, width = level.shape[2:]
            here = slice(first, first + height * width * shapes)
            first = here.stop
            # As the head orders them: row, column, anchor shape.
            of_level = torch.stack([found[here] for found in classes])
            grid = of_level.unflatten(1, (height, width, shapes))
            for k in range(shapes):
                image, row, column = (grid[..., k] >= 0).nonzero(as_tuple=True)
                features = patches(level, self._head, image, row, column)
                self.metric.update(features, grid[image, row, column, k], weight[k])

    def _classes(self, image: int) -> Tensor:
        """The class of each anchor of an image, −1 for those on no object."""
        from torchvision.ops import box_iou

        anchors, target = self._anchors[image], self._targets[image]
        none = torch.full((len(anchors),), -1, dtype=torch.int64, device=anchors.device)
        if not len(target["boxes"]):
            return none
        matched = self._model.proposal_matcher(box_iou(target["boxes"], anchors))
        return torch.where(matched >= 0, target["labels"][matched.clamp(min=0)], none)

    def remove(self) -> None:
        """Take the hooks off, and let go of what they kept."""
        for handle in self._handles:
            handle.remove()
        self._maps, self._anchors, self._targets = [], [], ()


def patches(maps: Tensor, conv: nn.Conv2d, image: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """What the conv multiplies with its flattened weight at these positions: (n, d·kh·kw)."""
    if isinstance(conv.padding, str) or conv.groups != 1:
        raise ValueError(f"a head of padding {conv.padding!r} and {conv.groups} groups has no MCBR")
    kernel, stride, dilation = conv.kernel_size, conv.stride, conv.dilation
    down, right = conv.padding
    padded = F.pad(maps, (right, right, down, down))
    found = [
        padded[image, :, row * stride[0] + i * dilation[0], column * stride[1] + j * dilation[1]]
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]
    return torch.stack(found, dim=2).flatten(1).float()
