"""Trainings for one machine: seconds for the digits, minutes for most of the others on two cores.

They keep the paper's optimizer, schedule and label smoothing; batches are smaller and warm-up is
shorter. Images live in memory, but for ``cifar10-se``, whose AutoAugment works on single images.
"""

from __future__ import annotations

from fixnorm.methods import MethodName
from fixnorm.recipes.methods import Baseline, by_method
from fixnorm.training import ClassificationRecipe, changed


def digits(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """The 1,797 embedded 8×8 digits: some seconds, about 99 % with every method."""
    recipe = ClassificationRecipe(
        name="digits",
        model="digits-resnet",
        data="digits",
        image_size=8,
        train_crop="pad",
        padding=1,
        lr=0.8,
        alpha=1.0,
        epochs=15,
        warmup_epochs=2,
        batch_size=128,
        workers=0,
        mcbr_every=5,
    )
    return by_method(recipe, method, Baseline(lr=0.2, weight_decay=1e-3))


def few_digits(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """200 of the embedded digits train, the other 1,597 validate: where lr and alpha show.

    Weight decay is the usual default, not tuned: 5e-4 at lr 0.1 for a batch of 128, here of 50.
    """
    recipe = changed(
        digits(),
        name="few-digits",
        data="few-digits",
        alpha=0.5,
        epochs=80,
        warmup_epochs=4,
        batch_size=50,
        eval_every=10,
        mcbr_every=10,
    )
    return by_method(recipe, method, Baseline(lr=0.04, weight_decay=5e-4))


def cifar10_small(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """ResNet-8, 32 wide with a stride-2 stem, on 20,000 images of CIFAR-10."""
    recipe = ClassificationRecipe(
        name="cifar10-small",
        model="resnet8-w32-s2",
        data="cifar10",
        image_size=32,
        train_crop="pad",
        flip=True,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        train_per_class=2000,
        lr=1.4,
        alpha=1.0,
        epochs=5,
        warmup_epochs=1,
        batch_size=128,
        workers=0,
    )
    return by_method(recipe, method, Baseline(lr=0.4, weight_decay=1e-3))


def cifar10_quick(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """Half a minute on one core: ResNet-8 on 5,000 images of CIFAR-10, for grids and searches."""
    recipe = changed(
        cifar10_small(),
        name="cifar10-quick",
        model="resnet8-s2",
        train_per_class=500,
        val_per_class=200,
        epochs=10,
    )
    return by_method(recipe, method, Baseline(lr=0.4, weight_decay=1e-3))


def cifar10_resnet20(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """ResNet-20 on all of CIFAR-10: minutes on a GPU, hours on a CPU.

    Epochs, batch, lr and λ of weight decay are those of He et al. 2016 (91.25 %). FixNorm's lr and
    alpha are those of ``cifar10-small`` and not tuned for the longer training.
    """
    recipe = changed(
        cifar10_small(),
        name="cifar10-resnet20",
        model="resnet20",
        train_per_class=None,
        epochs=164,
        warmup_epochs=4,
    )
    return by_method(recipe, method, Baseline(lr=0.1, weight_decay=1e-4))


def cifar10_mobilenetv2(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """A small MobileNetV2, a relative of the paper's, on 10,000 images of CIFAR-10."""
    recipe = changed(
        cifar10_small(),
        name="cifar10-mobilenetv2",
        model="tinynet-mobilenetv2",
        train_per_class=1000,
        lr=0.8,
        alpha=4.0,
    )
    return by_method(recipe, method, Baseline(lr=0.2, weight_decay=5e-4))


def cifar10_se(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """The small MobileNetV2 with the tricks of the starred models.

    Squeeze-and-excitation, SiLU, stochastic depth, and AutoAugment with its CIFAR-10 policy.
    """
    recipe = changed(
        cifar10_mobilenetv2(),
        name="cifar10-se",
        model="tinynet-se",
        drop_path=0.1,
        auto_augment="cifar10",
        workers=1,
    )
    return by_method(recipe, method, Baseline(lr=0.2, weight_decay=5e-4))


def fashion_mnist_small(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """ResNet-8 with a stride-2 stem on 20,000 images of Fashion-MNIST."""
    recipe = changed(
        cifar10_small(),
        name="fashion-mnist-small",
        model="resnet8-s2",
        data="fashion-mnist",
        image_size=28,
        padding=2,
        mean=(0.2860,),
        std=(0.3530,),
    )
    return by_method(recipe, method, Baseline(lr=0.4, weight_decay=1e-3))


def tiny_imagenet_head(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """Little data and a long training, where the cap of the head shows.

    50 classes of Tiny-ImageNet with 50 images each, at 32×32: long enough for an uncapped g to grow
    far beyond the cap.
    """
    recipe = ClassificationRecipe(
        name="tiny-imagenet-head",
        model="resnet8-w32-s2",
        data="imagefolder",
        image_size=32,
        train_crop="pad",
        flip=True,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        classes=50,
        train_per_class=50,
        lr=1.4,
        alpha=0.5,
        epochs=50,
        warmup_epochs=2,
        batch_size=128,
        workers=0,
    )
    return by_method(recipe, method, Baseline(lr=0.4, weight_decay=4e-3))


def tiny_imagenet_lr(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """More data and a short training, where the learning rate shows.

    100 classes of Tiny-ImageNet with 100 images each. The cap hardly matters: g does not meet it.
    """
    recipe = changed(
        tiny_imagenet_head(),
        name="tiny-imagenet-lr",
        classes=100,
        train_per_class=100,
        epochs=12,
        warmup_epochs=1,
        alpha=2.0,
    )
    return by_method(recipe, method, Baseline(lr=0.4, weight_decay=1e-3))


def tiny_imagenet_quick(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """Half a minute on one core: ``tiny-imagenet-head`` with a narrower network, 20 epochs."""
    recipe = changed(
        tiny_imagenet_head(), name="tiny-imagenet-quick", model="resnet8-s2", epochs=20
    )
    return by_method(recipe, method, Baseline(lr=0.4, weight_decay=4e-3))


SMALL = (
    digits,
    few_digits,
    cifar10_small,
    cifar10_quick,
    cifar10_resnet20,
    cifar10_mobilenetv2,
    cifar10_se,
    fashion_mnist_small,
    tiny_imagenet_head,
    tiny_imagenet_lr,
    tiny_imagenet_quick,
)
