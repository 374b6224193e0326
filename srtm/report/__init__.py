"""`srtm report`: results of benchmarks as a page and as Markdown."""

from srtm.report.report_command import report

__all__ = ["report"]
