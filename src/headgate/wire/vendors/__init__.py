"""Error bodies, one reader per family: a body goes in, a complaint or None comes out.

The first reader that knows the shape decides. A good answer is only read by those whose
shape cannot be somebody's data.
"""

from __future__ import annotations

from ..arrival import Arrival
from ..bodies import Json, first_object
from ..complaint import Complaint
from .chat import chat
from .google import google
from .others import discord, flat, github, named, problem, shopify, slack

_READERS = (google, slack, shopify, chat, discord, problem, github, flat, named)
_READERS_OF_GOOD_ANSWERS = (google, slack, shopify, chat, named)


def complaint_of(body: Json, arrival: Arrival) -> Complaint | None:
    """What the body of an error complains of."""
    return next((found for reader in _READERS if (found := reader(body, arrival)) is not None), None)


def complaint_about_good_answer(body: Json, arrival: Arrival) -> Complaint | None:
    """What a body complains of although its status says that all is well.

    OpenRouter also reports an upstream failure inside the choice that should have been filled.
    """
    choice = first_object(body.get("choices"))
    found = [reader(body, arrival) for reader in _READERS_OF_GOOD_ANSWERS]
    found.append(chat(choice, arrival) if choice is not None else None)
    return next((each for each in found if each and (each.outcome or each.status or each.limits)), None)
