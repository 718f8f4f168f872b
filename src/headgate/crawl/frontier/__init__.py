"""The frontier of a crawl: every URL, on disk. Here is what goes into it and what comes out of it.

waiting --take--> taken --+--> done      visited; its page, if it has one, is in the output
   ^                      +--> failed    with a reason, for good
   |                      +--> refused   with a reason: robots.txt, a private address, ...
   |                      +--> put_off   with a reason, until ``not_before``
   +-- given back, the process ended ----+, or that instant has come
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

ROBOTS_PATH = "/robots.txt"
LONGEST_CATEGORY = 40
"""Characters by which reasons are counted."""


class VisitState(Enum):
    """The order is that of the numbers in the file."""

    WAITING = "waiting"
    TAKEN = "taken"
    PUT_OFF = "put_off"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"

    __hash__ = object.__hash__
    """There is one of each, and it is looked up for every visit; an Enum's own hash is slow."""


class Reason(NamedTuple):
    """Why a URL was deferred, failed or refused: a category for programs, and a detail for people.

    Files, events and reports have it as one text, ``http_404: answered 404``.
    """

    category: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.category}: {self.detail}" if self.category and self.detail else self.category or self.detail

    @classmethod
    def parse(cls, text: str) -> Reason:
        """A reason from its text: the one place that takes it apart."""
        category, _, detail = text.partition(":")
        return cls(category[:LONGEST_CATEGORY], detail.strip())


@dataclass(frozen=True, slots=True)
class FoundUrl:
    """A URL in its canonical form, and where it was found."""

    url: str
    depth: int
    """Links from a seed. Of a sitemap it is below 0: -1 if robots.txt names it, -2 if one of those does, and so on."""
    found_on: str = ""
    """The page, sitemap or redirect that named it; empty for a seed."""
    redirects: int = 0
    """How many redirects in a row have led here."""

    @property
    def is_sitemap(self) -> bool:
        return self.depth < 0


@dataclass(frozen=True, slots=True)
class Visit:
    """A URL taken from the frontier, to be fetched. It ends with exactly one of ``finish``, ``put_off``, ``fail``,
    ``refuse`` and ``give_back``."""

    number: int
    """By which the frontier knows the URL: grows with its age."""
    url: str
    host: str
    depth: int
    found_on: str = ""
    redirects: int = 0
    attempts: int = 0
    """Tries that have failed before."""
    rate_limited: int = 0
    """How often it was told to come back later."""
    reason: str = ""
    """Why it was put off last."""

    @property
    def is_sitemap(self) -> bool:
        """Whether a robots.txt or a sitemap has named it as one."""
        return self.depth < 0

    @property
    def is_robots(self) -> bool:
        """Whether it reads a robots.txt, which the frontier has no number for."""
        return self.number == 0


@dataclass(frozen=True, slots=True)
class StoredRobots:
    """A host's robots.txt as it was answered."""

    status: int
    """0 if there was no answer."""
    body: bytes
    fetched_at: float
    """Unix time."""


@dataclass(frozen=True, slots=True)
class LostUrl:
    """A URL that was not visited in the end."""

    number: int
    url: str
    state: VisitState
    reason: str
    attempts: int
    found_on: str

    @property
    def category(self) -> str:
        """What the reason is counted by."""
        return Reason.parse(self.reason).category


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierCounts:
    waiting: int = 0
    """To be taken as soon as their hosts have their turn."""
    taken: int = 0
    put_off: int = 0
    done: int = 0
    failed: int = 0
    refused: int = 0
    hosts: int = 0
    pages: int = 0
    """In the output: redirects are done too, but are no pages."""
    reasons: Mapping[str, int]
    """How many were failed or refused, by the first word of the reason."""

    @property
    def open(self) -> int:
        return self.waiting + self.taken + self.put_off

    @property
    def known(self) -> int:
        return self.open + self.done + self.failed + self.refused
