"""What a part of a page says it is for: by its element, its role, or the words of its class and id.

Sites call the same things by the same few names. Some names are sure (a ``cookie-banner`` is never the text one came
for), others are used for anything (``menu``, ``related``): what is called so is judged by its text later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

LONGEST_NAMES = 500
"""Characters of a class and an id that are looked at."""
NAMES_REMEMBERED = 2_048
"""Classes and ids whose words are known: a page has few, and has them often."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_APART = _words("nav aside footer dialog menu search")
_ROLES_APART = _words(
    "navigation banner contentinfo complementary search dialog alertdialog menu menubar toolbar tablist alert"
)
_WORDS_APART = _words(
    "cookie cookies consent gdpr ccpa onetrust cookiebanner newsletter advert advertisement advertising adsbygoogle "
    "ads outbrain taboola printfooter breadcrumb breadcrumbs"
)
_WORDS_PERHAPS_APART = _words(
    "nav navbar navigation menu submenu sidebar sidenav toolbar topbar footer masthead share sharing social related "
    "recommended recommendations promo promoted promotion sponsor sponsored subscribe subscription signup popup modal "
    "overlay pagination pager toc banner ad upsell crosssell"
)
_WORDS_OF_NOTES = _words("note tip warning caution danger important info admonition callout hint example")
_NAME_WORD = re.compile(r"[a-z]+")
_UNSEEN = re.compile(r"(?i)display\s*:\s*none|visibility\s*:\s*hidden")
_UNSEEN_CLASS = re.compile(
    r"(?:^|\s)(?:sr-only|visually-?hidden|screen-reader-text|skip-?link|mw-editsection|linenos?|line-numbers|gutter)(?:$|\s)"
)


class Purpose(Enum):
    """What a zone says it is for."""

    MAIN = auto()
    ARTICLE = auto()
    APART = auto()
    """Beside the point: navigation, notices, advertisements."""
    PERHAPS_APART = auto()
    """Named like such; its text decides."""


@dataclass(slots=True)
class Zone:
    purpose: Purpose
    parent: Zone | None
    length: int = 0
    """Characters in it, those of zones within it included."""
    linked: int = 0
    """... and of these, in links."""
    holds_the_point: bool = False
    """Whether the main part, an article or the first heading stands in it."""


def purpose_of(tag: str, attributes: dict[str, str | None], *, within: Zone | None) -> Purpose | None:
    """None if it says nothing of the kind."""
    role = attributes.get("role") or ""
    if tag == "main" or role == "main":
        return Purpose.MAIN
    if tag == "article":
        return Purpose.ARTICLE
    in_the_point = within is not None and within.purpose in (Purpose.MAIN, Purpose.ARTICLE)
    names = f"{attributes.get('class') or ''} {attributes.get('id') or ''}"
    words = _name_words(names[:LONGEST_NAMES]) if len(names) > 1 else frozenset()
    if tag in _APART:
        is_note = tag == "aside" and in_the_point and words & _WORDS_OF_NOTES
        return None if is_note else Purpose.APART
    if role in _ROLES_APART or words & _WORDS_APART:
        return Purpose.APART
    if (tag == "header" and not in_the_point) or words & _WORDS_PERHAPS_APART:
        return Purpose.PERHAPS_APART
    return None


def is_unseen(attributes: dict[str, str | None]) -> bool:
    """Whether an element is there but not shown, or is shown beside the text, as line numbers are."""
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    style, class_ = attributes.get("style"), attributes.get("class")
    return bool(
        (style and _UNSEEN.search(style[:LONGEST_NAMES])) or (class_ and _is_unseen_class(class_[:LONGEST_NAMES]))
    )


@lru_cache(maxsize=NAMES_REMEMBERED)
def _is_unseen_class(names: str) -> bool:
    return _UNSEEN_CLASS.search(names) is not None


@lru_cache(maxsize=NAMES_REMEMBERED)
def _name_words(names: str) -> frozenset[str]:
    return frozenset(_NAME_WORD.findall(names.lower()))
