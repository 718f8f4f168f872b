"""Take secrets out of text before it is shown.

Keys travel as ``?key=``, in headers, in front of an ``@``, and in messages that quote
them. Each place has a pattern that starts at a fixed word and never goes back, so the
work grows with the text and no faster. What is hidden becomes ``***``.
"""

from __future__ import annotations

import re

from ..formatting import printable

LONGEST_TEXT = 65_536
"""Characters kept; whatever follows is dropped rather than shown unread."""
HIDDEN = "***"

_NAMES = (
    r"(?:[a-z]{1,16}[_-]){0,3}(?:api[_-]?key|(?:access|auth|refresh|id|session)[_-]?token|(?:client|app)[_-]?secret|"
    r"subscription[_-]?(?:key|token)|(?:secret|access|private)[_-]?(?:access[_-]?)?key|"
    r"secret|passwd|password|token|signature|sig)"
)
_HEADERS = (
    r"(?:proxy-)?authorization|(?:set-)?cookie|x-(?:[a-z]{1,16}-){0,3}(?:key|token|secret)|api-key|"
    r"ocp-apim-subscription-key"
)
_GAP = r"(?:\\{0,2}[\"'])?[ \t]{0,8}[:=][ \t]{0,8}(?:\\{0,2}[\"'])?"
_SHAPES = (
    r"sk-|pk-|rk-|[spr]k_(?:live|test)_|whsec_|AIza|ya29\.|tvly-|gsk_|pplx-|xai-|hf_|r8_|nvapi-|gh[pousr]_|"
    r"github_pat_|glpat-|xox[abeoprs]-|xapp-|shp[a-z]{2}_|AKIA|ASIA"
)
_PATTERNS = (
    # credentials in front of a host
    (re.compile(r"(?<=://)[^\s/?#@]+@"), HIDDEN + "@"),
    # Authorization: Bearer abc   'x-api-key': 'abc'
    (re.compile(rf"(?i)(?<![\w-])((?:{_HEADERS}){_GAP})[^\r\n\"']+"), rf"\1{HIDDEN}"),
    # ?key=abc   api_key=abc   "access_token": "abc"
    (re.compile(rf"(?i)(?<![\w-])({_NAMES}{_GAP})[^\s&;,\"'<>#)}}\]]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)([?&;]key=)[^\s&;,\"'<>#]+"), rf"\1{HIDDEN}"),
    # Bearer abc, wherever it stands
    (re.compile(r"(?i)\b(bearer|basic)[ \t]{1,8}[a-z0-9._~+/=-]{6,}"), rf"\1 {HIDDEN}"),
    # keys known by their shape, and JSON web tokens
    (re.compile(rf"(?<![A-Za-z0-9])({_SHAPES})[A-Za-z0-9_.-]{{6,}}"), rf"\1{HIDDEN}"),
    (re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]{8,}"), HIDDEN),
)


_CREDENTIAL_NAME = re.compile(
    r"cookie|credential|signature|secret|passw(?:or)?d|passphrase|authori[sz]|authentic|bearer|jwt|hmac"
    r"|(?:token|key|auth)(?:-|$)|(?:^|-)(?:sig|pwd|otp)(?:-|$)"
)
_NO_CREDENTIAL = frozenset(("idempotency-key", "sec-websocket-key"))


def is_credential(name: str) -> bool:
    """Whether a header or parameter of this name may hold a credential, by the names that are in use for it."""
    name = name.lower().replace("_", "-")
    return name not in _NO_CREDENTIAL and _CREDENTIAL_NAME.search(name) is not None


def for_display(text: str) -> str:
    """What a person may see of a name or a sentence from outside: no credentials, no control codes, one line."""
    return printable(redact(text))


def redact(text: str) -> str:
    """The text without credentials, at most ``LONGEST_TEXT`` characters of it."""
    shown = text[:LONGEST_TEXT]
    for pattern, instead in _PATTERNS:
        shown = pattern.sub(instead, shown)
    return shown if len(text) <= LONGEST_TEXT else shown + " ..."
