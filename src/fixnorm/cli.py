"""The ``fixnorm`` command."""

from __future__ import annotations

import sys

_NEEDED = {"typer", "rich", "pydantic", "numpy", "safetensors"}


def main() -> None:
    """Run the command line; say what to install where its libraries are missing."""
    try:
        from fixnorm.commands import run
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        print(
            f"fixnorm: the command line needs {error.name}: pip install 'fixnorm[train]'",
            file=sys.stderr,
        )
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
