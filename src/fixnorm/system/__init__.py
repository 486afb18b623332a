"""Processes and files: what the standard library needs help with, and nothing else."""

from fixnorm.system.files import (
    check_files,
    kind_of,
    open_regular,
    read_regular,
    regular,
    write_atomically,
)
from fixnorm.system.text import brief, printable

__all__ = [
    "brief",
    "check_files",
    "kind_of",
    "open_regular",
    "printable",
    "read_regular",
    "regular",
    "write_atomically",
]
