"""A scale of seconds: the digits for everything. Run as a script it is the command line with it."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from fixnorm.evidence import scales
from fixnorm.evidence.scales import Ranges, Workload
from fixnorm.tuning.plan import SearchSpace


def setting(**changes: Any) -> Workload:
    return Workload(
        name="digits",
        recipe="digits",
        changes={"epochs": 2, "warmup_epochs": 0.5, "train_per_class": 40, **changes},
        data=None,
        space=SearchSpace(splits=2, fractions=(0.5, 1.0), alphas=(0.5, 16.0)),
        decay=Ranges(lr=(0.1, 3.2), weight_decay=(1e-5, 1e-2)),
    )


TINY = replace(
    scales.SMALL,
    fig1=setting(),
    fig2=setting(),
    fig4=(setting(),),
    fig4_anew=(replace(setting(), seeds=2),),
    table1=(setting(),),
    budgets=(3,),
    plans=("paper", "auto"),
    table2=(setting(),),
    peers=setting(),
    forgiveness=(setting(), setting(batch_size=64)),
    seeds=2,
    searches=2,
)

if __name__ == "__main__":
    scales.SCALES["small"] = TINY
    from fixnorm.commands import run

    run(sys.argv[1:])
