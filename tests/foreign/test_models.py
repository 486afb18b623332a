"""Networks of others, trained as their users train them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fixnorm
from helpers.loops import check_training


def sgd(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=lr, momentum=0.9, nesterov=True)
    fixnorm.attach(optimizer)
    return optimizer


@pytest.mark.slow
@pytest.mark.tried("Models", "segmentation_models_pytorch: Unet", "works")
def test_a_unet_of_segmentation_models_pytorch() -> None:
    package = pytest.importorskip("segmentation_models_pytorch")
    x, y = torch.randn(2, 3, 32, 32), torch.randint(0, 3, (2, 32, 32))

    def start() -> tuple[nn.Module, Any]:
        model = package.Unet("resnet18", encoder_weights=None, classes=3, decoder_channels=[8] * 5)
        report = fixnorm.convert(model, alpha=1.0, sample=torch.randn(4, 3, 64, 64))
        assert [head.name for head in report.heads] == ["segmentation_head.0"]
        assert report.kept == ()
        return model, sgd(model, 0.5)

    check_training(
        start,
        lambda model: nn.functional.cross_entropy(model(x), y),
        steps=6,
        outputs=lambda model: model(x),
    )


@pytest.mark.tried("Models", "vit-pytorch: SimpleViT", "works")
def test_a_vit_of_vit_pytorch() -> None:
    package = pytest.importorskip("vit_pytorch")
    x, y = torch.randn(8, 3, 16, 16), torch.arange(8) % 5

    def start() -> tuple[nn.Module, Any]:
        model = package.SimpleViT(
            image_size=16, patch_size=4, num_classes=5, dim=24, depth=2, heads=2, mlp_dim=48
        )
        report = fixnorm.convert(model, alpha=1.0, sample=torch.randn(4, 3, 16, 16))
        assert [head.name for head in report.heads] == ["linear_head"]
        return model, sgd(model, 0.2)

    check_training(
        start,
        lambda model: nn.functional.cross_entropy(model(x), y),
        outputs=lambda model: model(x),
    )


@pytest.mark.slow
@pytest.mark.tried(
    "Models",
    "ultralytics: YOLOv8, its network and loss",
    "how to",
    'name the three classifiers, `head=["model.22.cv3.0.2", …]`',
)
def test_a_detector_of_ultralytics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network and loss of YOLOv8, its three classifiers named; images 64 pixels wide."""
    monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path))  # it writes settings when it is imported
    pytest.importorskip("ultralytics")
    from ultralytics.cfg import get_cfg
    from ultralytics.nn.tasks import DetectionModel

    boxes = {
        "img": torch.rand(4, 3, 64, 64),
        "batch_idx": torch.arange(4.0),
        "cls": torch.tensor([[0.0], [1.0], [2.0], [0.0]]),
        "bboxes": torch.tensor([[0.5, 0.5, 0.6, 0.6]] * 4),
    }

    def total(model: nn.Module) -> Tensor:
        loss, _ = model.loss(boxes)
        return loss.sum()

    def start() -> tuple[nn.Module, Any]:
        model = DetectionModel("yolov8n.yaml", nc=3, verbose=False)
        model.args = get_cfg()
        detect = next(name for name, m in model.named_modules() if type(m).__name__ == "Detect")
        heads = [f"{detect}.cv3.{i}.2" for i in range(3)]
        report = fixnorm.convert(
            model, alpha=4.0, head=heads, sample=lambda m: m(torch.rand(4, 3, 64, 64))
        )
        assert [head.name for head in report.heads] == heads
        return model, sgd(model, 0.02)

    images = boxes["img"]
    check_training(start, total, steps=4, falls_to=1.0, outputs=lambda model: model(images)[0])
