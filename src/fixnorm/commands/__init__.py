"""The commands behind ``fixnorm``: one file each."""

from fixnorm.commands.app import run

__all__ = ["run"]
