"""The ``fixnorm`` command."""

from __future__ import annotations

import signal
import sys

_NEEDED = {"typer", "rich", "pydantic", "numpy", "safetensors"}


def main() -> None:
    """Run the command line; say what to install where its libraries are missing."""
    try:
        from fixnorm.commands import run
        from fixnorm.system.words import guard
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        print(
            f"fixnorm: the command line needs {error.name}: pip install 'fixnorm[train]'",
            file=sys.stderr,
        )
        sys.exit(2)
    guard()
    try:
        run()
    finally:  # what is left is to leave
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
