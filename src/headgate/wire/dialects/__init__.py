"""The vendors whose answers are understood, and how one is recognised.

To add a vendor:

1. Write ``dialects/<vendor>.py`` (or add to the file of its family) with a ``Dialect``: ``dialect.py`` says what each
   field is for. ``platforms.py`` has vendors with next to nothing and small error readers, ``chat.py`` and
   ``google.py`` large ones. An error code that is new goes into ``_CODES`` of ``error_body.py``, by what it means.
2. Add it to ``DIALECTS`` below. Where two vendors claim an answer, the first one gets it; the same holds for two
   readers that know the shape of an error.
3. Put a real answer of the vendor into ``tests/wire/conftest.py``, by which it is recognised, test how it is read in
   ``tests/wire/test_dialects.py``, and name the vendor in docs/limiter.md, "What it reads".

``headgate limits`` explains its answers from then on. To have it in the mock too (``headgate mock --headers``), add
it to ``mock/dialects``, which says how.

    address            api.github.com                   surest: whatever its answers look like
    headers            x-github-request-id, budgets     the vendor's own words
    error              status, shape of the body
    convention         RateLimit, X-RateLimit, Retry-After
"""

from __future__ import annotations

from collections.abc import Callable

from ...core.signal import Limit
from ..dialect import IETF, RFC_9110, UNKNOWN, X_RATELIMIT, Dialect, ErrorReader
from ..error_body import ErrorDetails, Json, first_object
from ..headers import Budget, RateLimitHeaders, meaning
from ..retry_after import Arrival
from . import chat, google, platforms

DIALECTS: tuple[Dialect, ...] = (
    google.GEMINI,
    google.GOOGLE,
    google.GOOGLE_SEARCH,
    platforms.SLACK,
    chat.GROQ,
    chat.AZURE_OPENAI,
    chat.OPENAI,
    chat.ANTHROPIC,
    platforms.GITHUB,
    platforms.DISCORD,
    platforms.GITLAB,
    platforms.SHOPIFY,
    platforms.STRIPE,
    platforms.REDDIT,
    chat.OPENROUTER,
    platforms.TAVILY,
    platforms.PERPLEXITY,
    platforms.CLOUDFLARE,
    IETF,
    chat.MISTRAL,
    platforms.SEMANTIC_SCHOLAR,
    X_RATELIMIT,
    RFC_9110,
)

MOST_LABELS = 5
"""Labels of a host that are compared, from its end."""

BY_NAME: dict[str, Dialect] = {}
BY_HOST: dict[str, Dialect] = {}
MARKS: dict[str, bool] = {}
"""Headers to keep; True where one alone says something about limits."""

_OWNER_OF_MARK: dict[str, Dialect] = {}
_OWNER_OF_STATUS: dict[int, Dialect] = {}
_OWNERS_OF_BUDGETS: list[tuple[Callable[[Budget], bool], Dialect]] = []
_OWNERS_OF_PAGES: list[tuple[str, Dialect]] = []
_READERS: dict[ErrorReader, None] = {}
_READERS_OF_GOOD_ANSWERS: dict[ErrorReader, None] = {}


def register(dialect: Dialect) -> None:
    """Understand one more vendor in this process from now on; those before it get an answer that both claim."""
    if dialect.name in BY_NAME:
        if BY_NAME[dialect.name] is dialect:
            return
        raise ValueError(f"dialect {dialect.name!r} is already registered")
    BY_NAME[dialect.name] = dialect
    for host in dialect.hosts:
        BY_HOST.setdefault(host, dialect)
    for mark in dialect.marks:
        _OWNER_OF_MARK.setdefault(mark, dialect)
    for mark, says in {**dialect.marks, **dialect.reads}.items():
        MARKS.setdefault(mark, says)
    for status in dialect.statuses:
        _OWNER_OF_STATUS.setdefault(status, dialect)
    if dialect.owns_budget:
        _OWNERS_OF_BUDGETS.append((dialect.owns_budget, dialect))
    if dialect.page_mark:
        _OWNERS_OF_PAGES.append((dialect.page_mark, dialect))
    if dialect.read_error:
        _READERS.setdefault(dialect.read_error)
        if dialect.hides_errors:
            _READERS_OF_GOOD_ANSWERS.setdefault(dialect.read_error)
    meaning.cache_clear()  # it may have seen these headers when they meant nothing


for _dialect in DIALECTS:
    register(_dialect)


def by_host(host: str) -> Dialect | None:
    """The dialect of a known address."""
    if not host:
        return None
    labels = host.partition(":")[0].split(".")[-MOST_LABELS:]
    for first in range(len(labels) - 1):
        known = BY_HOST.get(".".join(labels[first:]))
        if known:
            return known
    return None


def recognise(headers: RateLimitHeaders, error: ErrorDetails | None, status: object, body: object) -> Dialect:
    """The dialect that an answer gives away, by what is surest; ``error`` is None where nothing is wrong."""
    marks, budgets = headers.marks, headers.budgets.values()
    if marks:
        for mark, dialect in _OWNER_OF_MARK.items():
            if mark in marks:
                return dialect
    for budget in budgets:
        for owns_budget, dialect in _OWNERS_OF_BUDGETS:
            if owns_budget(budget):
                return dialect
    if error is not None:
        if error.dialect:
            return BY_NAME[error.dialect]
        if isinstance(status, int) and status in _OWNER_OF_STATUS:
            return _OWNER_OF_STATUS[status]
        for page_mark, dialect in _OWNERS_OF_PAGES:
            if page_mark in marks and isinstance(body, str | bytes) and body[:64].lstrip()[:1] in ("<", b"<"):
                return dialect
    if "ratelimit" in marks or "ratelimit-policy" in marks:
        return IETF
    if budgets:
        return X_RATELIMIT if any(budget.meaning.family for budget in budgets) else IETF
    return RFC_9110 if headers.retries else UNKNOWN


def by_pace(dialect: Dialect, limits: list[Limit]) -> Dialect:
    """Groq and OpenAI use the same names.

    Where neither the address nor Groq's region tells them apart, what is relied on is that Groq counts
    requests by the day, which shows in how slowly they come back.
    """
    if dialect is not chat.OPENAI:
        return dialect
    daily = any(limit.window == 86400.0 and limit.dimension == "requests" for limit in limits)
    return chat.GROQ if daily else dialect


def read_error(body: Json, arrival: Arrival) -> ErrorDetails | None:
    """What the body of an error says. The first reader that knows the shape decides."""
    return next((found for reader in _READERS if (found := reader(body, arrival)) is not None), None)


def read_hidden_error(body: Json, arrival: Arrival) -> ErrorDetails | None:
    """What a body says of an error although its status says that all is well.

    OpenRouter also reports an upstream failure inside the choice that should have been filled.
    """
    choice = first_object(body.get("choices"))
    found = [reader(body, arrival) for reader in _READERS_OF_GOOD_ANSWERS]
    found.append(chat.read_error(choice, arrival) if choice is not None else None)
    return next((each for each in found if each and (each.outcome or each.status or each.limits)), None)
