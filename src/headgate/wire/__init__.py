"""The wire: what servers say about their limits, in any dialect, as one normalised signal.

Everything here is pure. Text and the time it came in go in, facts come out, and no input
from outside, however hostile, raises or costs more than a bounded amount of work.

    read(status, headers, body, wall=...)   one answer as a Signal
    signal_of(answer, ...)                  the same of a response, an exception or bare facts
    retry_after(value, wall=...)            one Retry-After value in seconds
    outcome_of_status, outcome_of_exception how a call ended
    facts_of, response_of, body_behind      what httpx, aiohttp, requests and the vendors' clients hand over
    error_message, error_sentence           what a server tells people of an error
    urls, explain                           keys for hosts, words for people
"""

from .parse import Headers, outcome_of_exception, outcome_of_status, read, signal_of
from .responses import (
    body_behind,
    error_message,
    error_sentence,
    facts_of,
    response_behind,
    response_of,
)
from .retry_after import retry_after

__all__ = [
    "Headers",
    "body_behind",
    "error_message",
    "error_sentence",
    "facts_of",
    "outcome_of_exception",
    "outcome_of_status",
    "read",
    "response_behind",
    "response_of",
    "retry_after",
    "signal_of",
]
