"""Run a command that cannot outlive whoever started it: ``python leash.py PARENT COMMAND...``.

The kernel sends SIGKILL when the parent dies, and ``exec`` keeps that request. PARENT is the pid
that must still be there once the request is made, or ``-`` for any. Run as a file, so that it
starts in milliseconds; it must not import the package.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def hold(parent: str) -> None:
    """Make this process die when the parent does."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent != "-" and os.getppid() != int(parent):
        sys.exit(f"process {parent}, which asked for this, is gone")


def _main() -> None:
    parent, *command = sys.argv[1:]
    hold(parent)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _main()
