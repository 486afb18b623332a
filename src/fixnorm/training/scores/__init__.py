"""Scores over a whole validation set, every image once over all processes."""

from fixnorm.training.scores.accuracy import Accuracy
from fixnorm.training.scores.average_precision import AveragePrecision
from fixnorm.training.scores.miou import MeanIoU
from fixnorm.training.scores.scorer import Score, Scorer

__all__ = ["Accuracy", "AveragePrecision", "MeanIoU", "Score", "Scorer"]
