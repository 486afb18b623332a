"""mIoU and AP against values worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fixnorm.training.distributed import World
from fixnorm.training.tasks.detection import average_precision
from fixnorm.training.tasks.segmentation import MeanIoU

ALONE = World(rank=0, size=1, device=torch.device("cpu"))


def logits_of(labels: torch.Tensor, classes: int) -> dict[str, torch.Tensor]:
    """Logits whose largest is at the label."""
    return {"out": torch.nn.functional.one_hot(labels, classes).movedim(-1, 1).float()}


def test_mean_iou_by_hand() -> None:
    """Six pixels counted, one ignored; class 2 is predicted but never labelled."""
    labels = torch.tensor([[[0, 0, 0, 1], [1, 1, 255, 255]]])
    predicted = torch.tensor([[[0, 0, 1, 1], [1, 2, 0, 2]]])
    score = MeanIoU("abcd", device=ALONE.device)
    score.update(logits_of(predicted, 4), labels)
    mean, each = score.compute(ALONE)
    # class 0: 2 right, 3 labelled, 2 predicted -> 2/3; class 1: 2 right, 3 and 3 -> 2/4
    assert each == {"a": pytest.approx(100 * 2 / 3), "b": pytest.approx(50), "c": None, "d": None}
    assert mean == pytest.approx(100 * (2 / 3 + 1 / 2) / 2)


def test_counts_are_added_before_they_are_divided() -> None:
    """One pixel right in a small image, 1 of 4 in a larger: 2/5, not (1 + 1/4) / 2."""
    score = MeanIoU("ab", device=ALONE.device)
    score.update(logits_of(torch.tensor([[[0]]]), 2), torch.tensor([[[0]]]))
    score.update(logits_of(torch.tensor([[[0, 1], [1, 1]]]), 2), torch.tensor([[[0, 0], [0, 0]]]))
    _, each = score.compute(ALONE)
    assert each["a"] == pytest.approx(100 * 2 / 5)


def test_a_set_without_a_labelled_pixel_scores_nothing() -> None:
    score = MeanIoU("ab", device=ALONE.device)
    score.update(logits_of(torch.tensor([[[0]]]), 2), torch.tensor([[[255]]]))
    assert score.compute(ALONE) == (0.0, {"a": None, "b": None})


def truth(*boxes: tuple[int, list[float]]) -> Any:
    return {
        "images": [{"id": 7, "file_name": "a.jpg", "height": 100, "width": 100}],
        "annotations": [
            {
                "id": k,
                "image_id": 7,
                "category_id": category,
                "bbox": box,
                "area": box[2] * box[3],
                "iscrowd": 0,
            }
            for k, (category, box) in enumerate(boxes, start=1)
        ],
        "categories": [{"id": 3, "name": "cell"}, {"id": 5, "name": "platelet"}],
    }


def found(category: int, box: list[float], score: float) -> Any:
    return {"image_id": 7, "category_id": category, "bbox": box, "score": score}


BOX = [10.0, 10.0, 40.0, 40.0]


def test_average_precision_by_hand() -> None:
    exact = average_precision(truth((3, BOX)), [found(3, BOX, 0.9)], [7], ALONE)
    assert exact["ap"] == pytest.approx(100)
    # 40 × 30 of 40 × 40: IoU 0.75 is enough for 6 of the 10 thresholds 0.5, 0.55, … 0.95
    low = average_precision(truth((3, BOX)), [found(3, [10, 10, 40, 30], 0.9)], [7], ALONE)
    assert low["ap"] == pytest.approx(60)
    assert low["ap50"] == pytest.approx(100)


def test_one_class_of_two_is_half() -> None:
    both = truth((3, BOX), (5, BOX))
    assert average_precision(both, [found(3, BOX, 0.9)], [7], ALONE)["ap"] == pytest.approx(50)


def test_a_better_scored_mistake_costs_precision() -> None:
    mistake = found(3, [60, 60, 10, 10], 0.95)
    score = average_precision(truth((3, BOX)), [mistake, found(3, BOX, 0.9)], [7], ALONE)
    assert score["ap"] == pytest.approx(50)


def test_nothing_found_or_nothing_there() -> None:
    assert average_precision(truth((3, BOX)), [], [7], ALONE)["ap"] == 0
    assert average_precision(truth(), [found(3, BOX, 0.9)], [7], ALONE)["ap"] == 0
