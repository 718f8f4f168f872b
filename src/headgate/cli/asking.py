"""Make one careful request: bounded in time, size and redirects, and close-mouthed about credentials.

same origin       a redirect is followed, headers and all
another origin    followed only if there is nothing to give away
"""

from __future__ import annotations

import time
import urllib.request
from dataclasses import dataclass, replace

import aiohttp
from yarl import URL

from headgate.exchange import AGENT, why_no_answer

LARGEST_BODY = 65_536
MOST_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    method: str
    url: URL
    headers: tuple[tuple[str, str], ...]
    body: str | None
    timeout: float

    @property
    def carries_credentials(self) -> bool:
        """Any header of the user's own may be one, whatever its name."""
        return bool(self.headers) or self.url.user is not None or self.url.password is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    url: URL
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    wall: float
    """When it came in, by the wall clock."""
    latency: float
    not_followed: URL | None = None
    """Where it pointed, if that was another origin and credentials were at stake."""


class NoAnswerError(Exception):
    """No answer came; the message is a clause that says why, to follow the name of the site that was asked."""


async def ask(question: Question) -> Answer:
    """Ask once and follow harmless redirects; raises ``NoAnswerError``."""
    timeout = aiohttp.ClientTimeout(total=question.timeout)
    async with aiohttp.ClientSession(timeout=timeout, headers=AGENT) as session:
        return await _follow(session, question)


def site_of(url: URL) -> str:
    return f"{url.host}:{url.port}"


async def _follow(session: aiohttp.ClientSession, question: Question) -> Answer:
    url, method, body = question.url, question.method, question.body
    for _ in range(MOST_REDIRECTS + 1):
        try:
            answer = await _once(session, question, url, method, body)
        except (aiohttp.ClientError, OSError) as error:
            sent_on = "" if url.origin() == question.url.origin() else f"sends on to {site_of(url)}, which "
            raise NoAnswerError(sent_on + why_no_answer(error, question.timeout)) from None
        location = next((value for name, value in answer.headers if name.lower() == "location"), None)
        if answer.status not in REDIRECTS or location is None:
            return answer
        try:
            target = url.join(URL(location))
        except ValueError:
            return answer
        if target.scheme not in ("http", "https") or target.host is None:
            return answer
        if target.origin() != question.url.origin() and (question.carries_credentials or body is not None):
            return replace(answer, not_followed=target)
        if answer.status == 303 or (answer.status in (301, 302) and method == "POST"):
            method, body = "GET", None
        url = target
    raise NoAnswerError(f"redirects more than {MOST_REDIRECTS} times")


async def _once(session: aiohttp.ClientSession, question: Question, url: URL, method: str, body: str | None) -> Answer:
    sent_at = time.monotonic()
    async with session.request(
        method, url, headers=question.headers, data=body, proxy=_proxy(url), allow_redirects=False
    ) as response:
        latency = time.monotonic() - sent_at
        headers = tuple(response.headers.items())
        received = await response.content.read(LARGEST_BODY) if method != "HEAD" else b""
        return Answer(
            url=url, status=response.status, headers=headers, body=received, wall=time.time(), latency=latency
        )


def _proxy(url: URL) -> str | None:
    """The proxy of the environment, if one is set for this address."""
    if url.host is None or urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)
