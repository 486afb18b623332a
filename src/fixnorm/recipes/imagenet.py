"""The paper's ImageNet trainings: every row of Table 2, and ResNet50 of section 2.

Common to all (section 3, "General setups"): Nesterov SGD, batch 1024, 4 epochs of linear warm-up,
then one cosine, label smoothing 0.1, no mixup. "Other settings follow reference implementations",
where the paper says no more; what is taken for them is said below.

- **Images.** Random-resized crop and flip for training. ResNets and MobileNets are evaluated as in
  He et al. 2019 (short side to 256, centre crop, bilinear), EfficientNets as in theirs (centre crop
  of size/(size + 32), bicubic). Colour jitter and PCA noise of He et al. are left out.
- **Tricks** (EfficientNet and the starred models). AutoAugment is policy ``v0``, which is what the
  EfficientNet reference trains with; the policy printed in the AutoAugment paper is ``original``.
  Stochastic depth is EfficientNet's 0.2 everywhere, for the paper applies "the same tricks with
  EfficientNet-B0". Dropout is not among the tricks it lists: EfficientNet keeps its 0.2, the
  starred models have none, like their plain relatives.
- **Weight averages.** The EfficientNet reference evaluates an average of the weights; a cosine that
  ends at 0 has little left to average, so there is none here (``ema=0.9999`` brings it).

Weight-decay settings: Table 1 prints the references of ResNet50-D (lr 0.4, λ 1e-4) and MobileNetV2
(lr 0.2, λ 4e-5); the † rows of Table 2, the longer and the starred trainings, use them as well.
"""

from __future__ import annotations

from fixnorm.methods import MethodName
from fixnorm.recipes.methods import Baseline, by_method
from fixnorm.training import ClassificationRecipe, changed

_RESNET = Baseline(lr=0.4, weight_decay=1e-4)
_MOBILENET = Baseline(lr=0.2, weight_decay=4e-5)


def resnet50d_120(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """ResNet50-D, 120 epochs."""
    recipe = ClassificationRecipe(
        name="resnet50d-120",
        model="resnet50d",
        data="imagefolder",
        image_size=224,
        train_crop="random-resized",
        flip=True,
        eval_crop="resnet",
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        lr=1.4,
        alpha=0.5,
        epochs=120,
        warmup_epochs=4,
        batch_size=1024,
        label_smoothing=0.1,
        paper_score=78.62,
        paper_reference_score=78.37,
    )
    return by_method(recipe, method, _RESNET)


def resnet50d_350(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """ResNet50-D, 350 epochs."""
    recipe = changed(
        resnet50d_120(),
        name="resnet50d-350",
        epochs=350,
        lr=1.1,
        paper_score=79.29,
        paper_reference_score=79.04,
    )
    return by_method(recipe, method, _RESNET)


def resnet50d_star_350(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """ResNet50-D*: with squeeze-and-excitation, SiLU, AutoAugment and stochastic depth."""
    recipe = changed(
        resnet50d_350(),
        name="resnet50d-star-350",
        model="resnet50d-star",
        auto_augment="v0",
        drop_path=0.2,
        alpha=1.0,
        paper_score=81.27,
        paper_reference_score=80.80,
    )
    return by_method(recipe, method, _RESNET)


def mobilenetv2_150(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """MobileNetV2, 150 epochs."""
    recipe = changed(
        resnet50d_120(),
        name="mobilenetv2-150",
        model="mobilenetv2",
        epochs=150,
        lr=0.5,
        alpha=16.0,
        paper_score=73.20,
        paper_reference_score=72.04,
    )
    return by_method(recipe, method, _MOBILENET)


def mobilenetv2_350(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """MobileNetV2, 350 epochs."""
    recipe = changed(
        mobilenetv2_150(),
        name="mobilenetv2-350",
        epochs=350,
        lr=0.35,
        alpha=8.0,
        paper_score=73.97,
        paper_reference_score=73.38,
    )
    return by_method(recipe, method, _MOBILENET)


def mobilenetv2_x112_star_350(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """MobileNetV2×1.12*: the multiply-adds and the tricks of EfficientNet-B0."""
    recipe = changed(
        mobilenetv2_350(),
        name="mobilenetv2-x1.12-star-350",
        model="mobilenetv2-x1.12-star",
        auto_augment="v0",
        drop_path=0.2,
        lr=0.5,
        alpha=8.0,
        paper_score=77.40,
        paper_reference_score=76.72,
    )
    return by_method(recipe, method, _MOBILENET)


def mobilenetv2_x154_star_350(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """MobileNetV2×1.54*: the multiply-adds of EfficientNet-B1, at 224×224."""
    recipe = changed(
        mobilenetv2_x112_star_350(),
        name="mobilenetv2-x1.54-star-350",
        model="mobilenetv2-x1.54-star",
        lr=0.65,
        alpha=4.0,
        paper_score=79.18,
        paper_reference_score=78.75,
    )
    return by_method(recipe, method, _MOBILENET)


def efficientnet_b0_350(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """EfficientNet-B0.

    Its reference, 77.30 %, was trained with RMSProp, a decay of 0.97 every 2.4 epochs and λ 1e-5:
    numbers that mean something else for Nesterov SGD with one cosine. Method ``weight-decay`` takes
    MobileNetV2's lr and λ instead, as the paper's † rows do for the starred MobileNets: B0 is made
    of the same inverted residuals, and everything but the method then stays equal.
    """
    recipe = changed(
        mobilenetv2_350(),
        name="efficientnet-b0-350",
        model="efficientnet-b0",
        train_interpolation="bicubic",
        eval_crop="efficientnet",
        auto_augment="v0",
        drop_path=0.2,
        drop=0.2,
        lr=0.5,
        alpha=4.0,
        paper_score=77.72,
        paper_reference_score=77.30,
    )
    return by_method(recipe, method, _MOBILENET)


def efficientnet_b1_350(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """EfficientNet-B1, at 240×240; weight decay as for B0."""
    recipe = changed(
        efficientnet_b0_350(),
        name="efficientnet-b1-350",
        model="efficientnet-b1",
        image_size=240,
        lr=0.8,
        alpha=8.0,
        paper_score=79.52,
        paper_reference_score=79.20,
    )
    return by_method(recipe, method, _MOBILENET)


def resnet50_100(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """ResNet50 of section 2 (Figures 1 and 2), 100 epochs.

    The paper prints lr and λ of weight decay alone (0.4, 1e-4) and no accuracy. The others take
    ResNet50-D's lr and alpha, its nearest relative in Table 2.
    """
    recipe = changed(
        resnet50d_120(),
        name="resnet50-100",
        model="resnet50",
        epochs=100,
        paper_score=None,
        paper_reference_score=None,
    )
    return by_method(recipe, method, _RESNET)


def resnet50_50(method: MethodName = "fixnorm") -> ClassificationRecipe:
    """ResNet50 of Figure 4, the grid of lr and alpha: 50 epochs."""
    recipe = changed(resnet50_100(), name="resnet50-50", epochs=50)
    return by_method(recipe, method, _RESNET)


TABLE_2 = (
    mobilenetv2_150,
    mobilenetv2_350,
    efficientnet_b0_350,
    efficientnet_b1_350,
    mobilenetv2_x112_star_350,
    mobilenetv2_x154_star_350,
    resnet50d_120,
    resnet50d_350,
    resnet50d_star_350,
)
"""In the order of the paper."""

SECTION_2 = (resnet50_100, resnet50_50)
