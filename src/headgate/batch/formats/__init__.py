"""A batch's files: rows in, results out."""

from .feeding import rows_for_loop
from .problems import BrokenRowError, InputError, OutputError
from .reading import InputRow, Rows
from .requests import Request
from .results import answer_line, dead_line, error_line, row_id
from .template import Template
from .writing import OutputFile

__all__ = [
    "BrokenRowError",
    "InputError",
    "InputRow",
    "OutputError",
    "OutputFile",
    "Request",
    "Rows",
    "Template",
    "answer_line",
    "dead_line",
    "error_line",
    "row_id",
    "rows_for_loop",
]
