"""A run's report as one file, HTML or Markdown."""

from .run_report import FORMS, Note, Notes, RunReport, form_of, report_of, write_report

__all__ = ["FORMS", "Note", "Notes", "RunReport", "form_of", "report_of", "write_report"]
