"""The features before the head, which MCBR (section 3) needs beside the logits."""

from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn


def find_head(model: nn.Module) -> nn.Module:
    """Return the layer that makes the logits.

    It is the last linear layer, or without one the last convolution: of `model.get_classifier()`
    where the model has that method (ours and timm's), otherwise of the model.
    """
    get_classifier: Any = getattr(model, "get_classifier", None)
    part = model if get_classifier is None else get_classifier()
    if isinstance(part, nn.Module) and not isinstance(part, nn.ModuleList):
        for kind in (nn.Linear, nn.Conv2d):
            layers = [module for module in part.modules() if isinstance(module, kind)]
            if layers:
                return layers[-1]
    found = f"{type(part).__name__} as its classifier" if get_classifier else "no layer of weights"
    raise ValueError(
        f"{type(model).__name__} has no single linear or conv head but {found}: "
        f"pass the layer whose input you want as head="
    )


class HeadInput:
    """Keeps what the head was given in the model's last forward pass.

        with HeadInput(model) as head:
            logits = model(images)
            features = head.features

    A hook on the head, so the model's own forward runs as it is: once, in its mode, under DDP or
    autocast, before `fixnorm.convert` or after: the head stays the same object.
    """

    def __init__(self, model: nn.Module, *, head: nn.Module | None = None) -> None:
        self._features: Tensor | None = None
        head = find_head(model) if head is None else head
        self._handle = head.register_forward_pre_hook(self._keep)

    def _keep(self, _: nn.Module, args: tuple[Any, ...]) -> None:
        # Detached: a kept graph would hold every activation of the step in memory.
        features: Tensor = args[0].detach()
        pooled = features.ndim == 4 and features.shape[2:] == (1, 1)
        self._features = features.flatten(1) if pooled else features

    @property
    def features(self) -> Tensor:
        """The head's input, without gradient.

        (B, d) for a linear head and a conv on pooled features, (B, d, H, W) for a conv on a map.
        """
        if self._features is None:
            raise RuntimeError("the head has not run yet: call the model first")
        return self._features

    def remove(self) -> None:
        """Take the hook off and let the features go."""
        self._handle.remove()
        self._features = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


def features_and_logits(
    model: nn.Module, x: Tensor, *, head: nn.Module | None = None
) -> tuple[Tensor, Tensor]:
    """Run the model once; return the head's input (no gradient) and the model's output."""
    with HeadInput(model, head=head) as captured:
        logits = model(x)
        return captured.features, logits
