"""Processes and files: what the standard library needs help with, and nothing else."""

from fixnorm.system.ours import check_files, write_files
from fixnorm.system.regular import kind_of, open_regular, read_regular, regular
from fixnorm.system.text import brief, printable, short

__all__ = [
    "brief",
    "check_files",
    "kind_of",
    "open_regular",
    "printable",
    "read_regular",
    "regular",
    "short",
    "write_files",
]
