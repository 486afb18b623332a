"""Losses, cross-boundary risk and pictures of dense tasks, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fixnorm.data import DetectionBatch, Target
from fixnorm.mcbr import mean_cross_boundary_risk
from fixnorm.training.tasks import Part, estimates_of, task_of
from fixnorm.training.tasks.dense import patches
from fixnorm.training.tasks.detection import AnchorRisk, boxes_overlay
from fixnorm.training.tasks.segmentation import PixelRisk, pixels_overlay
from helpers.dense_runs import detector, segmenter

CPU = torch.device("cpu")


# -- losses ----------------------------------------------------------------------------------------


def test_the_loss_of_pixels_by_hand() -> None:
    """Two classes, logits (0, 0) and (0, ln 3): probabilities 1/2, and 1/4 and 3/4."""
    out = torch.tensor([[[[0.0, 0.0, 9.0]], [[0.0, math.log(3), 0.0]]]])  # (1, 2, 1, 3)
    labels = torch.tensor([[[0, 0, 255]]])
    part = Part((torch.zeros(1, 3, 1, 3),), labels, 1)
    task = task_of(segmenter(auxiliary=0.5))
    expected = (math.log(2) + math.log(4)) / 2  # the third pixel has no class
    assert task.loss({"out": out}, part).item() == pytest.approx(expected)
    both = task.loss({"out": out, "aux": out}, part)
    assert both.item() == pytest.approx(1.5 * expected)
    right, counted = task.correct({"out": out}, part)
    assert (int(right), int(counted)) == (1, 2)  # a tie goes to the first class


def test_a_crop_without_a_labelled_pixel_has_no_loss() -> None:
    logits = torch.randn(1, 2, 2, 2, requires_grad=True)
    part = Part((torch.zeros(1, 3, 2, 2),), torch.full((1, 2, 2), 255), 1)
    loss = task_of(segmenter(auxiliary=0)).loss({"out": logits}, part)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_the_losses_of_boxes_are_focal_and_smooth_l1() -> None:
    """Against the formulas on the raw outputs of the heads."""
    task = task_of(detector())
    torch.manual_seed(0)
    model = task.network(2, 3).train()
    part = estimates_of(detector()).example(2, CPU)
    for target in part.inputs[1]:
        target["labels"] = target["labels"] % 2
    kept: dict[str, Tensor] = {}
    handle = model.head.register_forward_hook(lambda _, __, out: kept.update(out))
    anchors: list[Tensor] = []
    other = model.anchor_generator.register_forward_hook(lambda _, __, out: anchors.extend(out))
    with torch.no_grad():
        losses = model(*part.inputs)
    handle.remove()
    other.remove()

    classes, boxes = 0.0, 0.0
    for k, target in enumerate(part.inputs[1]):
        from torchvision.ops import box_iou

        best = box_iou(target["boxes"], anchors[k])
        matched = model.proposal_matcher(best)
        positive, counted = matched >= 0, matched != -2
        truth = torch.zeros_like(kept["cls_logits"][k])
        truth[positive, target["labels"][matched[positive]]] = 1
        p = torch.sigmoid(kept["cls_logits"][k])
        p_t = p * truth + (1 - p) * (1 - truth)
        a_t = 0.25 * truth + 0.75 * (1 - truth)
        focal = -a_t * (1 - p_t) ** 2 * torch.log(p_t)
        n = max(1, int(positive.sum()))
        classes += float(focal[counted].sum()) / n / 2
        wanted = model.box_coder.encode_single(
            target["boxes"][matched[positive]], anchors[k][positive]
        )
        d = (kept["bbox_regression"][k][positive] - wanted).abs()
        boxes += float(torch.where(d < 1, 0.5 * d**2, d - 0.5).sum()) / n / 2
    assert losses["classification"].item() == pytest.approx(classes, rel=1e-4)
    assert losses["bbox_regression"].item() == pytest.approx(boxes, rel=1e-4)
    assert task.loss(losses, part).item() == pytest.approx(classes + boxes, rel=1e-4)


# -- risk ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 1},
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": (1, 3), "padding": (0, 2), "dilation": (1, 2)},
        {"kernel_size": 3, "padding": 1, "stride": 2},
    ],
    ids=["1x1", "3x3", "dilated", "strided"],
)
def test_patches_are_what_the_conv_multiplies(options: dict[str, int]) -> None:
    conv, maps = nn.Conv2d(4, 5, **options, bias=False), torch.randn(2, 4, 6, 7)  # type: ignore[arg-type]
    out = conv(maps)
    image, row, column = torch.ones(out[:, 0].shape).nonzero(as_tuple=True)
    found = patches(maps, conv, image, row, column) @ conv.weight.flatten(1).T
    torch.testing.assert_close(found, out.permute(0, 2, 3, 1).flatten(0, 2))


def test_the_risk_of_pixels() -> None:
    """A head on a map of half the size: each position has the label in the middle of its cell."""
    head = nn.Conv2d(3, 4, 1)
    risk = PixelRisk(head, CPU, ignored=255)
    maps = torch.randn(2, 3, 2, 2)
    head(maps)
    labels = torch.full((2, 6, 6), 255)
    labels[:, 1, 1], labels[:, 1, 4], labels[0, 4, 1] = 0, 1, 3
    risk.update(labels)
    features = torch.stack([maps[0, :, 0, 0], maps[0, :, 0, 1], maps[0, :, 1, 0]])
    features = torch.cat([features, maps[1, :, 0, :].T])
    expected = mean_cross_boundary_risk(
        features, torch.tensor([0, 1, 3, 0, 1]), head.weight.detach().flatten(1)
    )
    assert risk.metric.compute().item() == pytest.approx(expected.item())
    assert int(risk.metric.count) == 5
    risk.remove()


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@torch.no_grad()
def test_the_risk_of_anchors(training: bool) -> None:
    """Against a loop over all anchors, with the features that the head saw, unfolded."""
    task = task_of(detector())
    torch.manual_seed(0)
    model = task.network(2, 3).train(training)
    head = model.get_submodule("head.classification_head.cls_logits")
    assert isinstance(head, nn.Conv2d)
    images = [torch.rand(3, 64, 64) for _ in range(2)]
    boxes = torch.tensor([[8.0, 8.0, 40.0, 40.0], [30.0, 10.0, 60.0, 60.0]])
    targets = [
        Target(boxes=boxes, labels=torch.tensor([0, 1]), image_id=0),
        Target(boxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.int64), image_id=1),
    ]
    batch = DetectionBatch(images, targets)
    risk = AnchorRisk(model, head, CPU)
    maps: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, args: maps.append(args[0]))
    model(*batch)
    risk.update(batch)
    hook.remove()

    from torchvision.ops import box_iou

    anchors = risk._anchors[0]
    matched = model.proposal_matcher(box_iou(boxes, anchors))
    weight = head.weight.unflatten(0, (9, 2)).flatten(2)
    total, count, at = 0.0, 0, 0
    for level in maps:
        unfolded = F.unfold(level, 3, padding=1)[0].T  # (positions, d·9)
        for feature in unfolded:
            for k in range(9):
                if matched[at] >= 0:
                    label = torch.tensor([int(targets[0]["labels"][matched[at]])])
                    total += mean_cross_boundary_risk(feature[None], label, weight[k]).item()
                    count += 1
                at += 1
    assert at == len(anchors)
    assert count > 5
    assert int(risk.metric.count) == count  # the image without boxes adds nothing
    assert risk.metric.compute().item() == pytest.approx(total / count, rel=1e-5)
    risk.remove()
    model(*batch)
    assert risk._maps == []


# -- pictures --------------------------------------------------------------------------------------


def test_a_picture_of_pixels_shows_image_labels_and_prediction() -> None:
    image = torch.full((3, 10, 400), 0.5)
    labels = torch.zeros(10, 400, dtype=torch.int64)
    labels[:, 200:] = 255
    predicted = torch.ones(10, 400, dtype=torch.int64)
    picture = pixels_overlay(image, labels, predicted, ignored=255)
    assert picture.size == (3 * 400 + 2 * 6, 10)
    labelled, unlabelled = picture.getpixel((410, 5)), picture.getpixel((410 + 300, 5))
    wrong = picture.getpixel((2 * 406 + 10, 5))
    assert len({labelled, unlabelled, wrong}) == 3
    assert len(set(unlabelled)) == 1  # type: ignore[arg-type]  # grey
    assert picture.getpixel((403, 5)) == (255, 255, 255)  # between them


def test_a_picture_of_boxes_leaves_out_what_is_unsure() -> None:
    image = torch.zeros(3, 60, 400)
    target = Target(
        boxes=torch.tensor([[10.0, 10.0, 50.0, 50.0]]), labels=torch.tensor([0]), image_id=1
    )
    found = {
        "boxes": torch.tensor([[10.0, 10.0, 50.0, 50.0], [200.0, 10.0, 250.0, 50.0]]),
        "scores": torch.tensor([0.9, 0.1]),
        "labels": torch.tensor([0, 1]),
    }
    picture = boxes_overlay(image, target, found, ("a", "b"))
    assert picture.size == (806, 60)
    assert picture.getpixel((50, 30)) == picture.getpixel((406 + 50, 30)) != (0, 0, 0)
    assert picture.getpixel((406 + 250, 30)) == (0, 0, 0)
    nothing = {name: value[:0] for name, value in found.items()}
    empty = boxes_overlay(image, target, nothing, ("a", "b"))
    assert empty.getpixel((406 + 50, 30)) == (0, 0, 0)
