"""A polite crawler on the same gate."""

from .config import CrawlConfig
from .crawler import Crawler, HostLook
from .output import Page
from .report import CrawlEvent, CrawlReport

__all__ = ["CrawlConfig", "CrawlEvent", "CrawlReport", "Crawler", "HostLook", "Page"]
