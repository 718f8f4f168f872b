"""What comes of asking for a page: an answer, or a problem with a name.

    kind             what it was                                         counts as
    ---------------  --------------------------------------------------  ------------------------
    bad_address      no address that can be asked                        abandoned: nothing sent
    refused_address  where the guard lets nobody go                      abandoned: nothing sent
    dns, connect     no such name; nobody there                          transient
    tls              no trust between us, or no common language          transient
    timeout          too late, silent or slow                            transient
    hung_up          the connection broke                                transient
    bad_headers      no HTTP, or headers beyond all measure              transient
    bad_encoding     packed in a way that cannot be unpacked             invalid
    too_large        more bytes than wanted                              ok: the server is well
    bomb             a few bytes that unpack to very many                ok
    not_wanted       another type of content                             ok

A problem names itself in our own words: whatever the server sent, or a library says about it, may be made to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from ..checks import check, check_finite, check_whole, number
from ..core.decision import Outcome
from ..errors import HeadgateError

OUTCOMES = {
    "bad_address": Outcome.ABANDONED,
    "refused_address": Outcome.ABANDONED,
    "dns": Outcome.TRANSIENT,
    "connect": Outcome.TRANSIENT,
    "tls": Outcome.TRANSIENT,
    "timeout": Outcome.TRANSIENT,
    "hung_up": Outcome.TRANSIENT,
    "bad_headers": Outcome.TRANSIENT,
    "bad_encoding": Outcome.INVALID,
    "too_large": Outcome.OK,
    "bomb": Outcome.OK,
    "not_wanted": Outcome.OK,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much of our time and memory one answer may take. Seconds and bytes."""

    total: float = 30.0
    connect: float = 10.0
    first_byte: float = 15.0
    """Until all headers are here, looking the name up and connecting included."""
    silence: float = 10.0
    """Between two pieces of the body."""
    slowest: float = 256.0
    """Bytes per second, on average, of a body that has taken longer than ``silence``."""
    largest: int = 10_000_000
    """Of the body, unpacked."""
    largest_ratio: float = 200.0
    """How many bytes one packed byte may stand for, in bodies of more than 1 MiB; pages reach about 50."""
    most_headers: int = 128
    longest_header: int = 8_190

    def __post_init__(self) -> None:
        for name in ("total", "connect", "first_byte", "silence"):
            check_finite(name, getattr(self, name))
        check("slowest", self.slowest, 0 <= number(self.slowest) < inf, "bytes per second, 0 or more")
        check("largest_ratio", self.largest_ratio, 1 <= number(self.largest_ratio) < inf, "1 or more")
        for name in ("largest", "most_headers", "longest_header"):
            check_whole(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """An answer that has been read to its end."""

    url: str
    status: int
    headers: Mapping[str, str]
    """Names in any case; ``items()`` has those that came more than once."""
    body: bytes
    """Unpacked. Empty if the answer is not 2xx and its body was unfit."""
    content_type: str
    """``text/html``; empty if the server did not say."""
    charset: str | None
    location: str | None
    """Where a 3xx leads, as the server wrote it; ``canonical(location, url)`` is an address or None."""
    latency: float
    """Seconds until the headers were here."""
    took: float
    """... and all the rest."""
    retry_after: float | None


class FetchProblem(HeadgateError):  # noqa: N818 - it names what an answer was, not a fault of ours
    """There is no answer to work on. ``sentence`` is a clause about the server, without a word that came from it."""

    def __init__(self, kind: str, sentence: str, outcome: Outcome | None = None, *, host: str = "it") -> None:
        super().__init__(f"{host} {sentence}")
        self.kind = kind
        self.sentence = sentence
        self.outcome = OUTCOMES[kind] if outcome is None else outcome
        self.host = host

    def __reduce__(self) -> tuple[object, ...]:
        return (_problem_again, (self.kind, self.sentence, self.outcome, self.host))


def _problem_again(kind: str, sentence: str, outcome: Outcome, host: str) -> FetchProblem:
    return FetchProblem(kind, sentence, outcome, host=host)
