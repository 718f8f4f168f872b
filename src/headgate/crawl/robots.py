"""What a host's robots.txt asks of a crawler, by RFC 9309, however badly it is written.

    answer                      means                                 asked again
    --------------------------  ------------------------------------  ------------
    2xx                         what it says                          after a day
    3xx that leads nowhere,     there is none: all is allowed         after a day
    4xx but 429
    429, 5xx, no answer         not known: nothing for now, and       in minutes
                                nothing is dropped because of it

Which lines are meant for this agent is decided here; only those are given to protego, which knows how patterns match.
A file can list ten thousand agents and then ten thousand rules for all of them; keeping the rules of each agent would
be a hundred million. Where a bound cuts a rule short it forbids more than was asked, never less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..formatting import plural
from .page.charset import decode

if TYPE_CHECKING:
    from protego import Protego

LARGEST = 512 * 1024
"""Bytes that are read; the rest of a larger file does not count (RFC 9309 asks for 500 KiB at least)."""
LONGEST_PATTERN = 4_096
MOST_WILDCARDS = 1_000
"""Rules with * or $, each of which is tried for every URL; plain beginnings are looked up all at once."""
MOST_SITEMAPS = 1_000
LONGEST_SITEMAP = 2_048
LONGEST_DELAY = 300.0
"""Seconds between two calls; a host that asks for more gets this."""
LIFE = 86_400.0
"""Seconds for which an answer counts."""
LIFE_UNKNOWN = 300.0
"""... and for which it is not asked again when there was none."""

_LINE_END = re.compile(r"\r\n|\r|\n")
_LINE = re.compile(
    r"(?i)(?P<agent>user[\s_-]?agent)|(?P<disallow>dis+al+[oa]w|diasllow)|(?P<allow>allow)|"
    r"(?P<delay>crawl[\s_-]?delay)|(?P<rate>request[\s_-]?rate)|(?P<sitemap>site-?maps?)"
)
_OTHER_LINE = re.compile(r"[A-Za-z][A-Za-z _-]{0,40}:")
_PRODUCT = re.compile(r"[A-Za-z_-]+")
_MARKUP = re.compile(rb"(?i)\s*<(?:!doctype|html|head|body|script|\?xml)")
_AGENT_SOMEWHERE = re.compile(rb"(?im)^\s*user-?agent\s*:")
_WRITTEN_AS = {"disallow": "Disallow", "allow": "Allow", "delay": "Crawl-delay", "rate": "Request-rate"}


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """What one host allows one agent; by default all. Made once, asked often; safe to share between threads."""

    known: bool = True
    """False while there was no answer: URLs are deferred, not refused."""
    delay: float | None = None
    """Seconds between two calls at least, from Crawl-delay or Request-rate; 0 to ``LONGEST_DELAY``."""
    sitemaps: tuple[str, ...] = ()
    problem: str = ""
    """What was wrong with the file, in a sentence; empty if it was fine."""
    life: float = LIFE
    """Seconds after which robots.txt should be asked for again."""
    _protego: Protego | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, body: bytes, agent: str) -> Rules:
        """The lines for this agent, or else those for all agents. Never raises; ``problem`` names what was wrong."""
        problems: list[str] = []
        parser = _RobotsParser(agent)
        parser.read(_lines(body, problems))
        problems += parser.problems()
        return parser.rules(problems)

    def allows(self, url: str) -> bool:
        """Whether this URL may be asked for. Of a URL that cannot be read: no."""
        if not self.known:
            return False
        if self._protego is None:
            return True
        try:
            return self._protego.can_fetch(url, "*")
        except ValueError:
            return False


def rules_for(status: int, body: bytes, agent: str) -> Rules:
    """What an answer to the request for robots.txt means. Redirects are followed before; 0: no answer."""
    if 200 <= status < 300:
        return Rules.parse(body, agent)
    if status == 429 or not 300 <= status < 500:
        problem = f"robots.txt: answered {status}" if status else "robots.txt: no response"
        return Rules(known=False, problem=problem, life=LIFE_UNKNOWN)
    return Rules(problem="robots.txt: redirects lead to no file" if status < 400 else "")


def _lines(body: bytes, problems: list[str]) -> Iterable[str]:
    if not body.strip():
        return ()
    if body.startswith(b"\x1f\x8b"):
        problems.append("is compressed twice")
        return ()
    if _MARKUP.match(body):
        problems.append("is HTML or XML")
        if not _AGENT_SOMEWHERE.search(body[:LARGEST]):
            return ()
    if len(body) > LARGEST:
        problems.append(f"has {len(body):,} bytes; only the first {LARGEST:,} are read")
        body = body[: body.rfind(b"\n", 0, LARGEST) + 1 or LARGEST]  # no rule is cut in two
    text, problem = decode(body, "utf-8")
    if problem:
        problems.append(problem)
    if "\0" in text:
        problems.append("contains NUL bytes")
        text = text.replace("\0", "")
    return _LINE_END.split(text)


class _RobotsParser:
    """One pass over the lines, keeping those of two groups: this agent's and those for all."""

    def __init__(self, agent: str) -> None:
        found = _PRODUCT.match(agent)
        self._agent = found[0].lower() if found else agent.lower()
        self._ours: list[tuple[str, str]] | None = None
        self._for_all: list[tuple[str, str]] = []
        self._sitemaps: dict[str, None] = {}
        self._too_many_sitemaps = False
        self._strange = self._orphans = self._shortened = self._odd_values = 0

    def read(self, lines: Iterable[str]) -> None:
        groups: list[list[tuple[str, str]]] = []
        """Where rules go now; rules before the first agent are taken as rules for all."""
        named, in_rules = False, False
        for kind, value in self._fields(lines):
            if kind == "agent":
                if in_rules or not named:
                    groups, in_rules = [], False
                named = True
                self._join(value, groups)
                continue
            in_rules = True
            if not named:
                self._orphans += 1
                self._for_all.append((kind, value))
            for group in groups:
                group.append((kind, value))

    def _fields(self, lines: Iterable[str]) -> Iterator[tuple[str, str]]:
        for line in lines:
            line = line.partition("#")[0].strip()
            if not line:
                continue
            found = _LINE.match(line)
            rest = line[found.end() :] if found else ""
            if found is None or found.lastgroup is None or (rest and rest[0] not in ": \t"):
                self._strange += not _OTHER_LINE.match(line)
                continue
            value = rest.lstrip().removeprefix(":").strip()
            if not rest.lstrip().startswith(":"):
                self._strange += 1
            if found.lastgroup != "sitemap":
                yield found.lastgroup, value
            elif 0 < len(value) <= LONGEST_SITEMAP:
                if len(self._sitemaps) < MOST_SITEMAPS:
                    self._sitemaps[value] = None
                else:
                    self._too_many_sitemaps = True

    def _join(self, value: str, groups: list[list[tuple[str, str]]]) -> None:
        """An agent's line opens its group for what follows; all groups of one agent are one."""
        token = _PRODUCT.match(value)
        if value == "*":
            group = self._for_all
        elif token is not None and token[0].lower() == self._agent:
            if self._ours is None:
                self._ours = []
            group = self._ours
        else:
            return
        if not any(group is one for one in groups):
            groups.append(group)

    def problems(self) -> Iterator[str]:
        if self._orphans:
            yield f"has {plural(self._orphans, 'rule')} before the first User-agent; they are applied to every agent"
        if self._strange:
            yield f"has {plural(self._strange, 'line')} without a rule or a colon"
        if self._too_many_sitemaps:
            yield f"lists more than {MOST_SITEMAPS:,} sitemaps; only the first are read"

    def rules(self, problems: list[str]) -> Rules:
        from protego import Protego  # an extra, loaded when the first robots.txt has come

        chosen = self._for_all if self._ours is None else self._ours
        written = list(dict.fromkeys(self._written(chosen)))
        delay = None
        protego = None
        if written:
            protego = Protego.parse("User-agent: *\n" + "\n".join(written))
            delay = _delay(protego, problems)
        if self._shortened:
            problems.append(
                f"has {self._shortened:,} rules that are too long or have too many wildcards; they forbid more URLs"
            )
        if self._odd_values:
            problems.append(f"has {plural(self._odd_values, 'invalid value')}")
        problem = f"robots.txt {', '.join(problems)}" if problems else ""
        return Rules(delay=delay, sitemaps=tuple(self._sitemaps), problem=problem, _protego=protego)

    def _written(self, rules: list[tuple[str, str]]) -> Iterator[str]:
        """The rules as protego reads them."""
        wildcards = 0
        for kind, value in rules:
            if kind in ("delay", "rate"):
                self._odd_values += not value[:1].isdigit() and not value.startswith(".")
                value = value[:64]
            elif not value:
                continue  # "Disallow:" allows all, and an empty Allow says nothing
            elif not value.startswith(("/", "*", "$", "http://", "https://")):
                value = f"/{value}"
            if kind in ("allow", "disallow"):
                special = "*" in value or value.endswith("$")
                wildcards += special
                if len(value) > LONGEST_PATTERN or (special and wildcards > MOST_WILDCARDS):
                    self._shortened += 1
                    if kind == "allow":
                        continue
                    value = value[:LONGEST_PATTERN].partition("*")[0].rstrip("$") or "/"
            yield f"{_WRITTEN_AS[kind]}: {value}"


def _delay(protego: Protego, problems: list[str]) -> float | None:
    asked = [seconds for seconds in (protego.crawl_delay("*"),) if seconds is not None]
    rate = protego.request_rate("*")
    if rate is not None:
        asked.append(rate.seconds / rate.requests)
    if not asked:
        return None
    if max(asked) > LONGEST_DELAY:
        problems.append(f"asks for {max(asked):,.0f} s between calls; {LONGEST_DELAY:.0f} s are used")
    return min(max(asked), LONGEST_DELAY)
