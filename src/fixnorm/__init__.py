"""FixNorm: train without weight decay.

Three lines in a training script::

    fixnorm.convert(model, alpha=1.0)
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=1.0, momentum=0.9, nesterov=True)
    fixnorm.attach(optimizer, lr="auto", steps=epochs * len(loader))
"""

from typing import TYPE_CHECKING, Any

from fixnorm import starting as _starting  # noqa: F401  (first: what follows takes its time)
from fixnorm.lazy import lazy

if TYPE_CHECKING:
    from fixnorm.conversion import convert
    from fixnorm.folding import fold, fold_state_dict
    from fixnorm.groups import param_groups
    from fixnorm.hook import Handle, attach, handle_of
    from fixnorm.layers import FixNormConv2d, FixNormLinear, WeightNormConv2d, WeightNormLinear
    from fixnorm.mcbr import MeanCrossBoundaryRisk, mean_cross_boundary_risk
    from fixnorm.roles import Audit, audit
    from fixnorm.tuning.function import tune

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "FixNormConv2d",
    "FixNormLinear",
    "Handle",
    "MeanCrossBoundaryRisk",
    "WeightNormConv2d",
    "WeightNormLinear",
    "__version__",
    "attach",
    "audit",
    "convert",
    "fold",
    "fold_state_dict",
    "handle_of",
    "mean_cross_boundary_risk",
    "param_groups",
    "tune",
]

if not TYPE_CHECKING:
    _get, __dir__ = lazy(
        __name__,
        {
            "conversion": "convert",
            "folding": "fold fold_state_dict",
            "groups": "param_groups",
            "hook": "Handle attach handle_of",
            "layers": "FixNormConv2d FixNormLinear WeightNormConv2d WeightNormLinear",
            "mcbr": "MeanCrossBoundaryRisk mean_cross_boundary_risk",
            "roles": "Audit audit",
            "tuning.function": "tune",
        },
    )

    def __getattr__(name: str) -> Any:
        """``tune`` needs more than torch."""
        try:
            return _get(name)
        except ModuleNotFoundError as error:
            if name != "tune":
                raise
            from fixnorm.system.extras import missing

            raise missing("fixnorm.tune", error, "tune") from error
