"""Files at the border: what is read is regular and checked, what is written over is ours."""

from fixnorm.files.checked import (
    Missing,
    Part,
    Unreadable,
    checked,
    fault,
    printable,
    read_checked,
    short,
)
from fixnorm.files.numbers import Count, Fraction, Loose, Name, Percent, Positive, Real, Slug
from fixnorm.files.ours import check_files
from fixnorm.files.regular import kind_of, open_regular, read_regular, regular

__all__ = [
    "Count",
    "Fraction",
    "Loose",
    "Missing",
    "Name",
    "Part",
    "Percent",
    "Positive",
    "Real",
    "Slug",
    "Unreadable",
    "check_files",
    "checked",
    "fault",
    "kind_of",
    "open_regular",
    "printable",
    "read_checked",
    "read_regular",
    "regular",
    "short",
]
