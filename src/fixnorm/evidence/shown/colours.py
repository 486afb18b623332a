"""One colour and one name for each method, in all figures."""

from fixnorm.report.style import SERIES

__all__ = ["COLOURS", "NAMES"]

COLOURS = {
    "fixnorm": SERIES[0],
    "weight-decay": SERIES[1],
    "algorithm1": SERIES[2],
    "wn-fc": SERIES[3],
}
NAMES = {
    "fixnorm": "FixNorm",
    "weight-decay": "weight decay",
    "algorithm1": "Algorithm 1",
    "wn-fc": "WN-FC (no cap)",
}
