"""A polite crawler on the same gate."""

from typing import Any

from ..events import CrawlEvent
from .config import CrawlConfig
from .crawler import Crawler
from .output import Page
from .report import CrawlReport
from .status import HostStatus

__all__ = ["CrawlConfig", "CrawlEvent", "CrawlReport", "Crawler", "HostStatus", "Page"]


def __getattr__(name: str) -> Any:
    if name == "HostLook":
        import warnings

        warnings.warn("HostLook has been renamed: use HostStatus", DeprecationWarning, stacklevel=2)
        return HostStatus
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
