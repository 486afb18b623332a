"""What the models of the recipes cost, stored: to list them takes no model and no torch.

A test builds every model and compares; :func:`fixnorm.recipes.cost` counts that of any recipe.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COSTS", "Cost"]


class Cost(NamedTuple):
    """Of one image."""

    size: tuple[int, int]
    """Its height and width under training; the largest where they differ."""
    params: int
    conv_macs: int
    """Multiply-adds of the convolutions, as the paper counts: without the head."""
    macs: int
    """With the head."""


COSTS = {
    "mobilenetv2-150": Cost((224, 224), 3_504_872, 299_494_272, 300_774_272),
    "mobilenetv2-350": Cost((224, 224), 3_504_872, 299_494_272, 300_774_272),
    "efficientnet-b0-350": Cost((224, 224), 5_288_548, 384_534_752, 385_814_752),
    "efficientnet-b1-350": Cost((240, 240), 7_794_184, 685_522_832, 686_802_832),
    "mobilenetv2-x1.12-star-350": Cost((224, 224), 4_718_635, 386_785_944, 388_217_944),
    "mobilenetv2-x1.54-star-350": Cost((224, 224), 8_028_936, 682_905_168, 684_873_168),
    "resnet50d-120": Cost((224, 224), 25_576_264, 4_326_776_832, 4_328_824_832),
    "resnet50d-350": Cost((224, 224), 25_576_264, 4_326_776_832, 4_328_824_832),
    "resnet50d-star-350": Cost((224, 224), 28_107_256, 4_329_291_776, 4_331_339_776),
    "resnet50-100": Cost((224, 224), 25_557_032, 4_087_136_256, 4_089_184_256),
    "resnet50-50": Cost((224, 224), 25_557_032, 4_087_136_256, 4_089_184_256),
    "cityscapes-baseoc-r101": Cost((769, 769), 57_721_062, 520_576_543_936, 565_903_535_808),
    "cityscapes-baseoc-r101-cos": Cost((769, 769), 57_721_062, 520_576_543_936, 565_903_535_808),
    "coco-retinanet-r50": Cost((800, 1333), 33_839_924, 248_394_060_800, 248_394_060_800),
    "coco-retinanet-r50-cos": Cost((800, 1333), 33_839_924, 248_394_060_800, 248_394_060_800),
    "digits": Cost((8, 8), 77_754, 762_880, 763_520),
    "few-digits": Cost((8, 8), 77_754, 762_880, 763_520),
    "cifar10-small": Cost((32, 32), 308_650, 12_279_808, 12_281_088),
    "cifar10-quick": Cost((32, 32), 78_042, 3_125_248, 3_125_888),
    "cifar10-resnet20": Cost((32, 32), 272_474, 40_812_544, 40_813_184),
    "cifar10-mobilenetv2": Cost((32, 32), 216_266, 8_667_136, 8_670_336),
    "cifar10-se": Cost((32, 32), 252_958, 8_702_208, 8_705_408),
    "fashion-mnist-small": Cost((28, 28), 77_754, 2_551_360, 2_552_000),
    "tiny-imagenet-head": Cost((32, 32), 313_810, 12_279_808, 12_286_208),
    "tiny-imagenet-lr": Cost((32, 32), 320_260, 12_279_808, 12_292_608),
    "tiny-imagenet-quick": Cost((32, 32), 80_642, 3_125_248, 3_128_448),
    "cityscapes-small": Cost((96, 128), 11_636_230, 2_315_685_888, 2_318_045_184),
    "coco-small": Cost((160, 213), 12_150_324, 1_838_066_432, 1_838_066_432),
}
"""By the name of the recipe."""
