"""From a name to a model."""

from torch import nn

from fixnorm.models import registries, small_resnet, zoo
from fixnorm.models.options import Options


def names() -> tuple[str, ...]:
    """Return the names `create` knows by itself, without suffixes and registries."""
    return (*zoo.PAPER, *small_resnet.NAMES, *zoo.TINY)


def create(
    name: str,
    *,
    num_classes: int | None = None,
    drop_path: float = 0.0,
    drop: float = 0.0,
    in_chans: int | None = None,
) -> nn.Module:
    """Build an untrained classifier; the package docstring lists the names.

    Args:
        name: such as `resnet50d-star`, `resnet8d-w32-s2`, `timm/regnety_008` or
            `torchvision/vgg16_bn`.
        num_classes: outputs; `None` is 1,000 for the paper's models, 10 for the small ones and the
            registry's own number for the others.
        drop_path: stochastic depth; the rate of the last block, growing linearly from the first.
        drop: dropout before the head.
        in_chans: image channels; `None` is 1 for the digits and 3 for the others.
    """
    options = Options(num_classes=num_classes, drop_path=drop_path, drop=drop, in_chans=in_chans)
    registry, slash, inner = name.partition("/")
    if slash and registry == "timm":
        return registries.from_timm(inner, options)
    if slash and registry == "torchvision":
        return registries.from_torchvision(inner, options)
    build = (zoo.PAPER | zoo.TINY).get(name) or small_resnet.builder(name)
    if build is None:
        first = [f"timm/{name}"] if name in registries.timm_names() else []
        known = [*names(), *small_resnet.relatives(name)]
        raise registries.unknown(name, known, listed_by="fixnorm.models.names()", first=first)
    return build(options)
