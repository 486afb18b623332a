"""Data to train on.

Classification: embedded digits, image folders, CIFAR-10, Fashion-MNIST.

    data = open_data("cifar10", Path("cifar10"), settings=DataSettings(image_size=32), seed=0)
    for images, labels in data.train.batches(epoch=0, batch_size=128):
        ...

Segmentation from Cityscapes' layout, detection from COCO's:

    data = open_segmentation(Path("cityscapes"), settings=SegmentationSettings(), seed=0)
    data = open_detection(Path("coco"), settings=DetectionSettings(), seed=0)

A batch depends on (seed, epoch, position) alone: it has the same bits for any number of workers or
ranks, after any resume, and whether the images live in memory or stream from disk.
"""

from typing import TYPE_CHECKING, Any

from fixnorm.lazy import lazy

if TYPE_CHECKING:
    from fixnorm.data.classification import Data, count_training_images, open_data
    from fixnorm.data.coco import GroundTruth, Skipped
    from fixnorm.data.detection import (
        DetectionBatch,
        DetectionData,
        Result,
        Target,
        open_detection,
    )
    from fixnorm.data.errors import DataError
    from fixnorm.data.segmentation import IGNORED, SegmentationData, open_segmentation
    from fixnorm.data.settings import (
        ClassificationFields,
        DataSettings,
        DenseFields,
        DenseSettings,
        DetectionSettings,
        SegmentationFields,
        SegmentationSettings,
    )
    from fixnorm.data.split import Batch, OpenSet, Progress

__all__ = [
    "IGNORED",
    "Batch",
    "ClassificationFields",
    "Data",
    "DataError",
    "DataSettings",
    "DenseFields",
    "DenseSettings",
    "DetectionBatch",
    "DetectionData",
    "DetectionSettings",
    "GroundTruth",
    "OpenSet",
    "Progress",
    "Result",
    "SegmentationData",
    "SegmentationFields",
    "SegmentationSettings",
    "Skipped",
    "Target",
    "count_training_images",
    "open_data",
    "open_detection",
    "open_segmentation",
]

if not TYPE_CHECKING:
    _get, __dir__ = lazy(
        __name__,
        {
            "classification": "Data count_training_images open_data",
            "coco": "GroundTruth Skipped",
            "detection": "DetectionBatch DetectionData Result Target open_detection",
            "errors": "DataError",
            "segmentation": "IGNORED SegmentationData open_segmentation",
            "settings": (
                "ClassificationFields DataSettings DenseFields DenseSettings DetectionSettings "
                "SegmentationFields SegmentationSettings"
            ),
            "split": "Batch OpenSet Progress",
        },
    )

    def __getattr__(name: str) -> Any:
        """Images need more than torch."""
        try:
            return _get(name)
        except ModuleNotFoundError as error:
            if error.name not in ("numpy", "PIL", "torchvision"):
                raise
            from fixnorm.system.extras import missing

            raise missing("fixnorm.data", error, "train") from error
