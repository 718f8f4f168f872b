"""The input of a batch: files of rows, in the shapes that people have them in."""

from ...errors import InputError
from .readers import read_in_thread
from .rows import BrokenRowError, InputRow, Rows
from .shapes import Request
from .template import Template

__all__ = ["BrokenRowError", "InputError", "InputRow", "Request", "Rows", "Template", "read_in_thread"]
