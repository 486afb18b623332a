"""FixNorm: train without weight decay.

Three lines in a training script::

    fixnorm.convert(model, alpha=1.0)
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=1.4, momentum=0.9, nesterov=True)
    fixnorm.attach(optimizer)
"""

from typing import TYPE_CHECKING, Any

from fixnorm import starting as _starting  # noqa: F401  (first: torch takes seconds to load)
from fixnorm.bypass import refuse_adapters
from fixnorm.conversion import convert
from fixnorm.folding import fold, fold_state_dict
from fixnorm.groups import param_groups
from fixnorm.hook import Handle, attach, handle_of
from fixnorm.layers import FixNormConv2d, FixNormLinear, WeightNormConv2d, WeightNormLinear
from fixnorm.mcbr import MeanCrossBoundaryRisk, mean_cross_boundary_risk
from fixnorm.roles import Audit, audit

if TYPE_CHECKING:
    from fixnorm.tuning.function import tune

__version__ = "0.1.0"

refuse_adapters()

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


def __getattr__(name: str) -> Any:
    """``tune`` needs more than torch: it is loaded when it is asked for."""
    if name != "tune":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from fixnorm.tuning.function import tune
    except ModuleNotFoundError as error:
        from fixnorm.system.extras import missing

        raise missing("fixnorm.tune", error, "tune") from error
    return tune
