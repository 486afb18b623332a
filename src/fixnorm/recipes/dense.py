"""Segmentation and detection: the paper's two of its appendix, and small relatives of them.

The appendix leaves some of it open; the choices here:

- **Segmentation** follows Base-OC's reference: images scaled by 0.5 to 2, mirrored, cropped to
  769×769; auxiliary loss 0.4; batch statistics over all GPUs; plain momentum. Validation sees whole
  images at one scale. The backbone is timm's ``resnet101s`` (deep stem), pretrained on ImageNet.
- **Detection**: batch norms train along, as a conv before a frozen norm is not scale-invariant
  (``frozen_norms=true`` freezes them, and weight-normalises those convs). The paper's reference
  warms up for 500 iterations.
- ``wn-fc`` and ``algorithm1`` have FixNorm's learning rate, as everywhere.

The small ones start from random weights. Their learning rates are above the appendix's range, which
is meant for pretrained backbones.
"""

from __future__ import annotations

from fixnorm.methods import MethodName
from fixnorm.models.facts import PRETRAINED
from fixnorm.recipes.methods import Baseline, by_method
from fixnorm.training import DetectionRecipe, SegmentationRecipe, changed

_CITYSCAPES = Baseline(lr=0.01, weight_decay=5e-4)
_COCO = Baseline(lr=0.01, weight_decay=1e-4)


def cityscapes_baseoc_r101(method: MethodName = "fixnorm") -> SegmentationRecipe:
    """ResNet-101 with Base-OC on Cityscapes, poly schedule."""
    recipe = SegmentationRecipe(
        name="cityscapes-baseoc-r101",
        model="base-oc/resnet101s",
        backbone_weights=PRETRAINED,
        sync_norms=True,
        lr=0.0335,
        alpha=1.0,
        schedule="poly",
        iterations=40_000,
        batch_size=8,
        eval_every=4_000,
        paper_score=79.4,
        paper_reference_score=78.7,
    )
    return by_method(recipe, method, _CITYSCAPES)


def cityscapes_baseoc_r101_cosine(method: MethodName = "fixnorm") -> SegmentationRecipe:
    """The same with a cosine schedule."""
    recipe = changed(
        cityscapes_baseoc_r101(),
        name="cityscapes-baseoc-r101-cos",
        lr=0.043,
        schedule="cosine",
        paper_score=79.7,
        paper_reference_score=78.3,
    )
    return by_method(recipe, method, _CITYSCAPES)


def coco_retinanet_r50(method: MethodName = "fixnorm") -> DetectionRecipe:
    """RetinaNet on ResNet-50 with a feature pyramid on COCO, stepped schedule."""
    recipe = DetectionRecipe(
        name="coco-retinanet-r50",
        model="retinanet/resnet50",
        backbone_weights=PRETRAINED,
        lr=0.0145,
        alpha=0.5,
        schedule="step",
        iterations=90_000,
        warmup_iterations=500,
        batch_size=16,
        eval_every=10_000,
        paper_score=36.9,
        paper_reference_score=36.5,
    )
    return by_method(recipe, method, _COCO)


def coco_retinanet_r50_cosine(method: MethodName = "fixnorm") -> DetectionRecipe:
    """The same with a cosine schedule."""
    recipe = changed(
        coco_retinanet_r50(),
        name="coco-retinanet-r50-cos",
        schedule="cosine",
        paper_score=37.1,
        paper_reference_score=36.2,
    )
    return by_method(recipe, method, _COCO)


def cityscapes_small(method: MethodName = "fixnorm") -> SegmentationRecipe:
    """ResNet-18 with a narrow Base-OC on street scenes of 256×192, from random weights."""
    recipe = SegmentationRecipe(
        name="cityscapes-small",
        model="base-oc/resnet18",
        width=64,
        crop=(96, 128),
        scale=(0.4, 1.0),
        lr=0.275,
        alpha=0.5,
        iterations=120,
        warmup_iterations=10,
        batch_size=8,
        eval_every=60,
        eval_batch_size=10,
        workers=0,
        mcbr_every=25,
    )
    return by_method(recipe, method, Baseline(lr=0.275, weight_decay=5e-4))


def coco_small(method: MethodName = "fixnorm") -> DetectionRecipe:
    """RetinaNet on ResNet-18 at 160 pixels, from random weights."""
    recipe = DetectionRecipe(
        name="coco-small",
        model="retinanet/resnet18",
        width=64,
        smallest_anchor=16,
        he_subnets=True,
        short_side=160,
        max_side=213,
        lr=0.095,
        alpha=0.5,
        iterations=160,
        warmup_iterations=30,
        batch_size=8,
        eval_every=80,
        eval_batch_size=8,
        clip=1.0,
        workers=0,
        mcbr_every=25,
    )
    return by_method(recipe, method, Baseline(lr=0.095, weight_decay=1e-4))


APPENDIX = (
    cityscapes_baseoc_r101,
    cityscapes_baseoc_r101_cosine,
    coco_retinanet_r50,
    coco_retinanet_r50_cosine,
)
DENSE_SMALL = (cityscapes_small, coco_small)
