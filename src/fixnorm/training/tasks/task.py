"""What a training does with its data: all that differs between classes of images, of pixels, and
boxes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from PIL.Image import Image
from torch import Tensor, nn

from fixnorm.data import OpenSet, Progress
from fixnorm.roles import Sample
from fixnorm.training.recipe import R
from fixnorm.training.scores import Scorer
from fixnorm.training.tasks.risk import Head, Risk

__all__ = ["D", "Expected", "Logits", "Metric", "Part", "Task", "by_channel"]

D = TypeVar("D", bound=OpenSet[Any])


class Metric(NamedTuple):
    """What is maximised, in percent."""

    name: str
    """In files: ``miou``."""
    title: str
    """For people: ``mIoU``."""

    @property
    def label(self) -> str:
        """With its unit."""
        return f"{self.title} (%)"


@dataclass(frozen=True, slots=True)
class Part:
    """Images that go through the model together, on its device."""

    inputs: tuple[Any, ...]
    """What the model is called with."""
    labels: Any
    images: int


class Expected(NamedTuple):
    """What a set holds as its authors give it away, for estimates without it."""

    images: int
    """Of an epoch."""
    classes: int
    size: tuple[int, int, int]
    """Channels, height and width of an image under training; the largest where they differ."""


class Task(ABC, Generic[R, D]):
    """One kind of training, by its recipe."""

    metric: ClassVar[Metric]
    normalises_always: ClassVar[bool] = False
    """Whether layers without a norm are weight-normalised under plain weight decay, too."""

    def __init__(self, recipe: R) -> None:
        self.recipe = recipe

    # -- before the training -------------------------------------------------------------------

    @abstractmethod
    def open(
        self, root: Path | None, *, skip_broken: bool = False, progress: Progress | None = None
    ) -> D:
        """The data."""

    @abstractmethod
    def training_images(self, root: Path | None) -> int:
        """Images of an epoch; a set that :meth:`open` refuses at first sight is refused here."""

    @abstractmethod
    def check(self, data: D) -> None:
        """Refuse data that nothing can be learnt from."""

    @abstractmethod
    def network(self, classes: int, channels: int) -> nn.Module:
        """The model, freshly initialised."""

    def prepare(self, model: nn.Module, data: D) -> None:
        """Load weights to start from, and make sure that the model takes the images."""

    def sample(self) -> Sample | None:
        """What the audit calls the model with; none where the model says itself what it takes."""
        return None

    def heads(self, measured: list[str]) -> list[str]:
        """The classifiers, the main one first: as measured, unless the recipe names one."""
        return measured if self.recipe.head is None else [self.recipe.head]

    @abstractmethod
    def expected(self) -> Expected:
        """The set by what is known of it."""

    @abstractmethod
    def example(self, images: int, device: torch.device) -> Part:
        """Random images as :meth:`expected`, to measure speed with."""

    # -- a step --------------------------------------------------------------------------------

    @abstractmethod
    def part(self, batch: Any, device: torch.device, memory_format: torch.memory_format) -> Part:
        """A batch on the device."""

    @abstractmethod
    def split(self, part: Part, parts: int) -> Iterator[Part]:
        """The batch in equal parts."""

    @abstractmethod
    def loss(self, outputs: Any, part: Part) -> Tensor:
        """The mean loss of a part."""

    def correct(self, outputs: Any, part: Part) -> tuple[Tensor | int, Tensor | int]:
        """How many of how many classes are right; (0, 0) where there is no such thing."""
        return 0, 0

    @abstractmethod
    def risk(self, model: nn.Module, head: Head | None, device: torch.device) -> Risk:
        """Counts the cross-boundary risk of what goes through the model."""

    # -- after it ------------------------------------------------------------------------------

    @abstractmethod
    def scorer(self, data: D, device: torch.device) -> Scorer:
        """Counts the metric over a set."""

    @abstractmethod
    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        """All that the model says about images, as one tensor: what an export must not change."""

    @abstractmethod
    def preparation(self, channels: int) -> dict[str, Any]:
        """How images are prepared for the model, in the words of timm's configurations."""

    def draw(self, model: nn.Module, data: D, images: int, device: torch.device) -> list[Image]:
        """Predictions on the first validation images, drawn; none where there is nothing to see."""
        return []


class Logits(nn.Module):
    """A network as a function of one tensor: :meth:`Task.logits`."""

    def __init__(self, network: nn.Module, task: Task[Any, Any]) -> None:
        super().__init__()
        self.network, self._task = network, task

    def forward(self, images: Tensor) -> Tensor:
        """What the task makes of it."""
        return self._task.logits(self.network, images)


def by_channel(values: tuple[float, ...], channels: int) -> list[float]:
    """A mean or deviation with a value for each channel."""
    return list(values) * channels if len(values) == 1 else list(values)
