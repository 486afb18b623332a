"""`timm/NAME` and `torchvision/NAME`; both libraries are imported when a model asks for them."""

import re
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from torch import nn

from fixnorm.models.options import Options, input_size, set_input_size
from fixnorm.system.extras import imported
from fixnorm.system.nearest import nearest_are


def need_timm() -> ModuleType:
    return imported("timm", what="this model", extra="train")


def need_torchvision() -> ModuleType:
    return imported("torchvision", what="this model", extra="train")


def unknown(
    name: str, known: Iterable[str], *, listed_by: str, first: Iterable[str] = ()
) -> ValueError:
    """Return the error for `name`: the names to show `first`, then the nearest known ones."""
    near = nearest_are(name, known, first=first, otherwise="no name is near it")
    return ValueError(f"unknown model {name!r}: {near}; all are listed by {listed_by}")


def timm_names(*, tagged: bool = False) -> list[str]:
    """Return timm's names, or those with the tag of a published weight; none without timm."""
    try:
        names: list[str] = need_timm().list_models(pretrained=tagged)
    except ImportError:
        return []
    return names


def from_timm(name: str, options: Options) -> nn.Module:
    """Build timm's model `name`, untrained."""
    timm = need_timm()
    arch, tagged, _ = name.partition(".")
    if not timm.is_model(arch) or (tagged and name not in timm_names(tagged=True)):
        known = [f"timm/{other}" for other in timm_names(tagged=bool(tagged))]
        raise unknown(f"timm/{name}", known, listed_by="timm.list_models()")
    model = _build(
        lambda **rates: timm.create_model(name, **_shape(options), **rates),
        f"timm/{name}",
        {"drop_path_rate": options.drop_path, "drop_rate": options.drop},
    )
    if options.in_chans is not None:
        _, height, width = input_size(model)
        set_input_size(model, (options.in_chans, height, width))
    return model


def from_torchvision(name: str, options: Options) -> nn.Module:
    """Build torchvision's classifier `name`, untrained."""
    models = need_torchvision().models
    known = models.list_models(module=models)
    if name not in known:
        known = [f"torchvision/{other}" for other in known]
        raise unknown(f"torchvision/{name}", known, listed_by="torchvision.models.list_models()")
    if options.in_chans not in (None, 3):
        raise ValueError(
            f"torchvision/{name} takes 3 channels but got in_chans={options.in_chans}: "
            f"repeat the channel, or use the timm/ model of the same family"
        )
    shape: dict[str, Any] = _shape(options)
    shape.pop("in_chans", None)
    if name in ("googlenet", "inception_v3"):
        # Auxiliary heads turn the output in train mode from a tensor into a tuple.
        shape |= {"aux_logits": False, "init_weights": True}
    model = _build(
        lambda **rates: models.get_model(name, **shape, **rates),
        f"torchvision/{name}",
        {"stochastic_depth_prob": options.drop_path, "dropout": options.drop},
    )
    if options.drop_path == 0.0:
        # maxvit_t sets a rate of its own and does not let the caller change it.
        for module in model.modules():
            if type(module).__name__ == "StochasticDepth":
                module.p = 0.0  # type: ignore[assignment]
    # The smallest crop of the published weights: larger ones belong to re-built variants.
    size = min(w.transforms().crop_size[0] for w in models.get_model_weights(name))
    set_input_size(model, (3, size, size))
    return model


def _shape(options: Options) -> dict[str, Any]:
    shape = {"num_classes": options.num_classes, "in_chans": options.in_chans}
    return {key: value for key, value in shape.items() if value is not None}


_REFUSED = re.compile(r"(unexpected keyword argument|multiple values for keyword argument) '(\w+)'")
_DROP_PATH = ("drop_path_rate", "stochastic_depth_prob")


def _build(build: Callable[..., nn.Module], name: str, rates: dict[str, float]) -> nn.Module:
    """Build with the rates the model takes; a rate above 0 that it does not take is an error."""
    while True:
        try:
            return build(**rates)
        except TypeError as error:
            refused = _REFUSED.search(str(error))
            if refused is None or refused[2] not in rates:
                raise
            option = "drop_path" if refused[2] in _DROP_PATH else "drop"
            rate = rates[refused[2]]
            rates = {key: value for key, value in rates.items() if key != refused[2]}
        if rate > 0.0:
            raise ValueError(f"{name} has no {option} but got {option}={rate}: leave it at 0")
