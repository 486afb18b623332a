"""The report of one or several searches: a page that needs nothing but itself, and its figures."""

from fixnorm.report.write import write_report

__all__ = ["write_report"]
