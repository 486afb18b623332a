"""Boxes: the losses of RetinaNet, and COCO's average precision by its own evaluator."""

from __future__ import annotations

import colorsys
import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from PIL.Image import Image
from torch import Tensor, nn

from fixnorm.data import (
    DetectionBatch,
    DetectionData,
    GroundTruth,
    Result,
    Target,
    open_detection,
)
from fixnorm.models.detectors import create_detector
from fixnorm.roles import Sample
from fixnorm.training.distributed import World
from fixnorm.training.kinds import METRICS
from fixnorm.training.kinds.detection import DetectionRecipe
from fixnorm.training.tasks.dense import DenseTask, enlargement, patches, side_by_side
from fixnorm.training.tasks.task import (
    Estimates,
    Expected,
    Exports,
    Head,
    Part,
    Risk,
    Score,
    Scorer,
)

__all__ = ["Detection"]

_AUDITED = 96
"""Side of the images that the audit tries: what a layer depends on does not depend on it."""


_SHOWN = 0.3
"""Score from which on a box is drawn, unless even the best one is below: then that one."""


class AveragePrecision(Scorer):
    """AP at IoU 0.5 to 0.95, and what COCO reports beside it."""

    def __init__(self, data: DetectionData) -> None:
        self._data = data
        self._results: list[Result] = []
        self._seen: list[int] = []

    def update(self, outputs: Sequence[Mapping[str, Tensor]], labels: DetectionBatch) -> None:
        """What torchvision's detectors find on a batch."""
        for found, image, target in zip(outputs, labels.images, labels.targets, strict=True):
            self._results += self._data.results(
                target,
                image,
                boxes=found["boxes"],
                scores=found["scores"],
                labels=found["labels"],
            )
            self._seen.append(target["image_id"])

    def compute(self, world: World) -> Score:
        found = average_precision(self._data.ground_truth, self._results, self._seen, world)
        return Score(found["ap"], found)


def average_precision(
    ground_truth: GroundTruth, results: Sequence[Result], seen: Sequence[int], world: World
) -> dict[str, float]:
    """AP in percent: ``ap`` (IoU 0.5 to 0.95), ``ap50``, ``ap75``, and of each size of objects.

    Args:
        ground_truth: of the whole validation set.
        results: what this process found on its images.
        seen: ids of the images that this process looked at.
        world: all processes; each gets the numbers of all of them.
    """
    from faster_coco_eval import COCO, COCOeval_faster

    everything = _gathered(list(results), world)
    images = sorted(set(_gathered(list(seen), world)))
    names = ("ap", "ap50", "ap75", "small", "medium", "large")
    if not everything or not ground_truth["annotations"]:
        return dict.fromkeys(names, 0.0)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
        truth = COCO()
        truth.dataset = ground_truth
        truth.createIndex()
        evaluator = COCOeval_faster(truth, truth.loadRes(everything), iouType="bbox")
        evaluator.params.imgIds = images
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    # −1 stands for "no object of that size in the set"
    return {name: 100 * max(float(v), 0.0) for name, v in zip(names, evaluator.stats, strict=False)}


def _gathered(values: list[Any], world: World) -> list[Any]:
    if world.size == 1:
        return values
    parts: list[list[Any]] = [[] for _ in range(world.size)]
    dist.all_gather_object(parts, values)
    return [value for part in parts for value in part]


class AnchorRisk(Risk):
    """Of torchvision's RetinaNet: every anchor that is matched with an object counts.

    Its head is one classifier for each anchor shape, and only anchors on an object have a class.
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


class _Estimates(Estimates[DetectionRecipe]):
    def expected(self) -> Expected:
        size = (3, self.recipe.short_side, self.recipe.max_side)
        return Expected(self.recipe.train_images or 117_266, 80, size)

    def example(self, images: int, device: torch.device) -> Part:
        _, classes, (_, height, width) = self.expected()
        return _noise(images, (height, width), classes=classes, device=device)


class _Exports(Exports[DetectionRecipe]):
    no_onnx = "a detector's boxes are sorted out by no ONNX file"

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        """Of classes and boxes, before anything is sorted out."""
        network = cast(Any, model)
        heads = network.head(list(network.backbone(images).values()))
        return torch.cat([heads["cls_logits"], heads["bbox_regression"]], dim=-1)

    def preparation(self, channels: int) -> dict[str, Any]:
        """Pixels in 0..1 of any size: the model resizes and normalises them itself."""
        return {"short_side": self.recipe.short_side, "max_side": self.recipe.max_side}


class Detection(DenseTask[DetectionRecipe, DetectionData]):
    """Focal loss and smooth L1, as RetinaNet has them; COCO's AP."""

    recipe_kind = DetectionRecipe
    estimates = _Estimates
    exports = _Exports
    opener = staticmethod(open_detection)
    package = "faster_coco_eval"
    metric = METRICS["ap"]
    normalises_always = True  # the paper does so "for all the models"

    def network(self, classes: int, channels: int) -> nn.Module:
        return create_detector(
            self.recipe.model,
            num_classes=classes,
            short_side=self.recipe.short_side,
            long_side=self.recipe.max_side,
            width=self.recipe.width,
            smallest_anchor=self.recipe.smallest_anchor,
            he_subnets=self.recipe.he_subnets,
            frozen_norms=self.recipe.frozen_norms,
        )

    def sample(self) -> Sample:
        part = _noise(2, (_AUDITED, _AUDITED), classes=1, device=torch.device("cpu"))

        def call(model: nn.Module) -> Any:
            transform = cast(Any, model.transform)  # the audit's copy: its own resize is set aside
            transform.min_size, transform.max_size = (_AUDITED,), _AUDITED
            return model(*part.inputs)

        return call

    def part(
        self, batch: DetectionBatch, device: torch.device, memory_format: torch.memory_format
    ) -> Part:
        """Lists of images and targets; the model stacks them itself."""
        targets = [
            Target(
                boxes=target["boxes"].to(device, non_blocking=True),
                labels=target["labels"].to(device, non_blocking=True),
                image_id=target["image_id"],
            )
            for target in batch.targets
        ]
        images = [image.to(device, non_blocking=True) for image in batch.images]
        return _part(DetectionBatch(images, targets))

    def split(self, part: Part, parts: int) -> Iterator[Part]:
        images, targets = part.inputs
        share = len(images) // parts
        for k in range(0, len(images), share):
            yield _part(DetectionBatch(images[k : k + share], targets[k : k + share]))

    def loss(self, outputs: Mapping[str, Tensor], part: Part) -> Tensor:
        """Of classes (focal, α 0.25, γ 2) and of boxes (smooth L1)."""
        return outputs["classification"] + outputs["bbox_regression"]

    def risk(self, model: nn.Module, head: Head | None, device: torch.device) -> Risk:
        return AnchorRisk(model, head, device) if isinstance(head, nn.Conv2d) else Risk(device)

    def scorer(self, data: DetectionData, device: torch.device) -> AveragePrecision:
        return AveragePrecision(data)

    @torch.no_grad()
    def draw(
        self, model: nn.Module, data: DetectionData, images: int, device: torch.device
    ) -> list[Image]:
        drawn: list[Image] = []
        for batch in data.val.eval_batches(batch_size=1):
            if len(drawn) == images:
                break
            (found,) = model([batch.images[0].to(device)])
            found = {name: value.cpu() for name, value in found.items()}
            drawn.append(boxes_overlay(batch.images[0], batch.targets[0], found, data.classes))
        return drawn


def _part(batch: DetectionBatch) -> Part:
    return Part((batch.images, batch.targets), batch, len(batch.images))


def _noise(images: int, size: tuple[int, int], *, classes: int, device: torch.device) -> Part:
    height, width = size
    box = torch.tensor([[0.2 * width, 0.2 * height, 0.7 * width, 0.6 * height]], device=device)
    batch = DetectionBatch(
        [torch.rand(3, height, width, device=device) for _ in range(images)],
        [
            Target(boxes=box, labels=torch.tensor([k % classes], device=device), image_id=k)
            for k in range(images)
        ],
    )
    return _part(batch)


def boxes_overlay(
    image: Tensor, target: Target, found: Mapping[str, Tensor], classes: Sequence[str]
) -> Image:
    """Labelled boxes on the left, found ones with their scores on the right.

    Args:
        image: (3, H, W) in 0..1.
        target: boxes and labels in the image's pixels.
        found: ``boxes``, ``scores`` and ``labels`` as torchvision's detectors give them.
        classes: names by label.
    """
    scores = found["scores"]
    least = min(_SHOWN, float(scores.max())) if len(scores) else _SHOWN
    shown = scores >= least
    labels = found["labels"][shown].tolist()
    words = [f"{classes[k]} {s:.2f}" for k, s in zip(labels, scores[shown].tolist(), strict=True)]
    true = target["labels"].tolist()
    return side_by_side(
        [
            _boxed(image, target["boxes"], true, [classes[k] for k in true]),
            _boxed(image, found["boxes"][shown], labels, words),
        ]
    )


def _boxed(image: Tensor, boxes: Tensor, labels: list[int], words: list[str]) -> Tensor:
    from torchvision.utils import draw_bounding_boxes

    factor = enlargement(image)
    pixels = image[None].repeat_interleave(factor, 2).repeat_interleave(factor, 3)[0]
    pixels = (pixels * 255).round().byte()
    if len(boxes):
        colours: Any = [_colour(k) for k in labels]
        pixels = draw_bounding_boxes(pixels, boxes * factor, words, colours, width=2)
    return pixels / 255


def _colour(label: int) -> tuple[int, int, int]:
    """Hues a golden ratio apart: those of the first labels differ most."""
    red, green, blue = colorsys.hsv_to_rgb((0.04 + label * 0.618034) % 1, 0.9, 0.85)
    return round(255 * red), round(255 * green), round(255 * blue)
