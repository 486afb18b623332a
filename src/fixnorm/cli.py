"""The ``fixnorm`` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; say what to install where its libraries are missing."""
    try:
        from fixnorm.commands import run
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        print(
            f"fixnorm: the command line needs {error.name}: pip install 'fixnorm[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
