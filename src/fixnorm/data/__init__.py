"""Classification data: embedded digits, image folders, CIFAR-10, Fashion-MNIST.

    data = open_data("cifar10", Path("cifar10"), settings=DataSettings(image_size=32), seed=0)
    for images, labels in data.train.batches(epoch=0, batch_size=128):
        ...

A batch depends on (seed, epoch, position) alone: it has the same bits for any number of workers or
ranks, after any resume, and whether the images live in memory or stream from disk.
"""

try:
    from fixnorm.data.errors import DataError
    from fixnorm.data.opening import Data, Progress, count_training_images, open_data
    from fixnorm.data.settings import DataSettings
    from fixnorm.data.split import Batch, EvalSplit, Split, TrainSplit
except ModuleNotFoundError as error:
    if error.name not in ("numpy", "PIL", "torchvision"):
        raise
    raise ModuleNotFoundError(
        f"fixnorm.data needs {error.name}: pip install 'fixnorm[train]'", name=error.name
    ) from error

__all__ = [
    "Batch",
    "Data",
    "DataError",
    "DataSettings",
    "EvalSplit",
    "Progress",
    "Split",
    "TrainSplit",
    "count_training_images",
    "open_data",
]
