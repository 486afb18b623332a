"""What a training does with its data: all that differs between classes of images, of pixels, and
boxes.

A task is a kind of recipe and a :class:`Task`, which has to open data, build a network, and know
its loss and its score. What is known without the data (:class:`Estimates`) and how a trained model
is given away (:class:`Exports`) are parts of their own, which a task may lack.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from PIL.Image import Image
from torch import Tensor, nn

from fixnorm.data import OpenSet, Progress
from fixnorm.mcbr import MeanCrossBoundaryRisk
from fixnorm.models import HeadInput
from fixnorm.roles import Sample
from fixnorm.training.distributed import World
from fixnorm.training.kinds import Metric
from fixnorm.training.recipe import R, Recipe

__all__ = [
    "D",
    "Estimates",
    "Expected",
    "Exports",
    "Head",
    "HeadRisk",
    "Logits",
    "Part",
    "Risk",
    "Score",
    "Scorer",
    "Task",
    "by_channel",
]

D = TypeVar("D", bound=OpenSet[Any])
Head = nn.Linear | nn.Conv2d


@dataclass(frozen=True, slots=True)
class Part:
    """Images that go through the model together, on its device."""

    inputs: tuple[Any, ...]
    """What the model is called with."""
    labels: Any
    images: int


class Score(NamedTuple):
    """Of a whole set."""

    value: float
    """Percent, more is better."""
    detail: Mapping[str, float | None] = {}
    """What it is made of: by class, or by size of objects."""


class Scorer(ABC):
    """Counts batches, then scores what it has seen, every image once over all processes."""

    @abstractmethod
    def update(self, outputs: Any, labels: Any) -> None:
        """Count what the model said about a batch."""

    @abstractmethod
    def compute(self, world: World) -> Score:
        """The score over all processes; each of them has to call it."""


class Risk:
    """MCBR of what goes through a model; this one counts nothing, for models without a head."""

    def __init__(self, device: torch.device) -> None:
        self.metric = MeanCrossBoundaryRisk(device=device)

    def update(self, labels: Any) -> None:
        """Count the batch that has just gone through the model."""

    def remove(self) -> None:
        """Take the hooks off the model."""


class HeadRisk(Risk):
    """By the input of one head, which is kept as it goes by."""

    def __init__(self, head: Head, device: torch.device) -> None:
        super().__init__(device)
        self._head = head
        self._input = HeadInput(head, head=head)

    def remove(self) -> None:
        self._input.remove()


class Expected(NamedTuple):
    """What a set holds as its authors give it away."""

    images: int
    """Of an epoch."""
    classes: int
    size: tuple[int, int, int]
    """Channels, height and width of an image under training; the largest where they differ."""


class Estimates(ABC, Generic[R]):
    """What is known of a training without its data: its cost is told by this."""

    def __init__(self, recipe: R) -> None:
        self.recipe = recipe

    @abstractmethod
    def expected(self) -> Expected:
        """The set by what is known of it."""

    @abstractmethod
    def example(self, images: int, device: torch.device) -> Part:
        """Random images as :meth:`expected`, to measure speed with."""


class Exports(ABC, Generic[R]):
    """How a trained model is given away."""

    no_onnx: ClassVar[str | None] = None
    """Why there is no ONNX file of such a model, where there is none."""

    def __init__(self, recipe: R) -> None:
        self.recipe = recipe

    @abstractmethod
    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        """All that the model says about images, as one tensor: what an export must not change."""

    @abstractmethod
    def preparation(self, channels: int) -> dict[str, Any]:
        """How images are prepared for the model, in the words of timm's configurations."""


class Task(ABC, Generic[R, D]):
    """One kind of training, by its recipe. Batches are two tensors unless a task says otherwise."""

    recipe_kind: ClassVar[type[Recipe]]
    """Its ``task`` is the name of the task."""
    metric: ClassVar[Metric]
    estimates: ClassVar[type[Estimates[Any]] | None] = None
    exports: ClassVar[type[Exports[Any]] | None] = None
    normalises_always: ClassVar[bool] = False
    """Whether layers without a norm are weight-normalised under plain weight decay, too."""

    def __init__(self, recipe: R) -> None:
        self.recipe = recipe

    @abstractmethod
    def open(
        self, root: Path | None, *, skip_broken: bool = False, progress: Progress | None = None
    ) -> D:
        """The data, which the caller closes."""

    @abstractmethod
    def network(self, classes: int, channels: int) -> nn.Module:
        """The model, freshly initialised."""

    @abstractmethod
    def loss(self, outputs: Any, part: Part) -> Tensor:
        """The mean loss of a part."""

    @abstractmethod
    def scorer(self, data: D, device: torch.device) -> Scorer:
        """Counts the metric over a set."""

    # -- what a task may change ----------------------------------------------------------------

    def training_images(self, root: Path | None) -> int:
        """Images of an epoch; a set that :meth:`open` refuses at first sight is refused here."""
        data = self.open(root)
        data.close()
        return len(data.train)

    def check(self, data: D) -> None:
        """Refuse data that nothing can be learnt from."""

    def prepare(self, model: nn.Module, data: D) -> None:
        """Load weights to start from, and make sure that the model takes the images."""

    def sample(self) -> Sample | None:
        """What the audit calls the model with; none where the model says itself what it takes."""
        return None

    def heads(self, measured: list[str]) -> list[str]:
        """The classifiers, the main one first: as measured, unless the recipe names one."""
        return measured if self.recipe.head is None else [self.recipe.head]

    def part(self, batch: Any, device: torch.device, memory_format: torch.memory_format) -> Part:
        """A batch on the device."""
        images = batch.images.to(device, memory_format=memory_format, non_blocking=True)
        return Part((images,), batch.labels.to(device, non_blocking=True), len(images))

    def split(self, part: Part, parts: int) -> Iterator[Part]:
        """The batch in equal parts."""
        (images,) = part.inputs
        for x, y in zip(images.chunk(parts), part.labels.chunk(parts), strict=True):
            yield Part((x,), y, len(x))

    def correct(self, outputs: Any, part: Part) -> tuple[Tensor | int, Tensor | int]:
        """How many of how many classes are right; (0, 0) where there is no such thing."""
        return 0, 0

    def risk(self, model: nn.Module, head: Head | None, device: torch.device) -> Risk:
        """Counts the cross-boundary risk of what goes through the model."""
        return Risk(device)

    def draw(self, model: nn.Module, data: D, images: int, device: torch.device) -> list[Image]:
        """Predictions on the first validation images, drawn; none where there is nothing to see."""
        return []


class Logits(nn.Module):
    """A network as a function of one tensor: :meth:`Exports.logits`."""

    def __init__(self, network: nn.Module, exports: Exports[Any]) -> None:
        super().__init__()
        self.network, self._exports = network, exports

    def forward(self, images: Tensor) -> Tensor:
        return self._exports.logits(self.network, images)


def by_channel(values: tuple[float, ...], channels: int) -> list[float]:
    """A mean or deviation with a value for each channel."""
    return list(values) * channels if len(values) == 1 else list(values)
