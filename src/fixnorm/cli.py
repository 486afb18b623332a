"""The ``fixnorm`` command."""

from __future__ import annotations

import signal
import sys

from fixnorm.leaving import leaving_at_once
from fixnorm.system.extras import EXTRAS, needs


def main() -> None:
    """Run the command line; say what to install where its libraries are missing."""
    try:
        from fixnorm.commands import run
        from fixnorm.system.words import guard
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        line = needs("the command line", error.name, EXTRAS[error.name])
        print(f"fixnorm: {line}", file=sys.stderr)
        sys.exit(2)
    guard()
    with leaving_at_once():
        try:
            run()
        finally:  # what is left is to leave
            signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
