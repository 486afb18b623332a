"""Models by name: the paper's zoo, small relatives for one machine, and two registries.

`create(name)` builds a freshly initialised classifier; `names()` lists the fixed names.

The paper's (1,000 classes; 224×224 images, EfficientNet-B1 240×240):

| name | what it is |
|---|---|
| `resnet50` | ResNet50 of section 2 |
| `resnet50d` | ResNet50-D: deep stem, average-pool shortcuts |
| `resnet50d-star` | ResNet50-D* of Table 2: with squeeze-and-excitation and SiLU |
| `mobilenetv2` | MobileNetV2 |
| `mobilenetv2-x1.12-star`, `mobilenetv2-x1.54-star` | wider, with SE and SiLU (Table 2) |
| `efficientnet-b0`, `efficientnet-b1` | EfficientNet |

Small ones (10 classes; 32×32 images, the digits 8×8):

| name | what it is |
|---|---|
| `resnet8`, `14`, `20`, `32`, `44`, `56` | CIFAR ResNets: 3×3 stem, three stages of basic blocks |
| `resnet8d`, ... | their D variants: three-conv stem, average-pool shortcuts |
| suffix `-wN` | the first stage is N wide, the next 2N and 4N: `resnet8-w32`; N = 16 without it |
| suffix `-s2` | stem of stride 2, a quarter of the cost: `resnet8-s2`, `resnet8d-w32-s2` |
| `tinynet-mobilenetv2` | a small MobileNetV2 |
| `tinynet-se` | the same net with SE and SiLU, a small relative of the starred models |
| `micronet-mobilenetv2`, `micronet-se` | both again, ten times as fast: for grids and searches |
| `micronet-vit`, `micronet-convnext` | as fast, with layer norms: a ViT and a ConvNeXt |
| `digits-resnet` | `resnet8` for grey 8×8 images |

Registries: `timm/NAME` is any timm model, `torchvision/NAME` any torchvision classifier.

The CIFAR ResNets and `digits-resnet` need torch alone; the others need the `train` extra.
"""

from typing import TYPE_CHECKING

from fixnorm.lazy import lazy

if TYPE_CHECKING:
    from fixnorm.models.counts import count
    from fixnorm.models.factory import create, names
    from fixnorm.models.facts import Counts
    from fixnorm.models.features import HeadInput, features_and_logits, find_head
    from fixnorm.models.options import input_size

__all__ = [
    "Counts",
    "HeadInput",
    "count",
    "create",
    "features_and_logits",
    "find_head",
    "input_size",
    "names",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "counts": "count",
            "facts": "Counts",
            "factory": "create names",
            "features": "HeadInput features_and_logits find_head",
            "options": "input_size",
        },
    )
