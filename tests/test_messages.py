"""The catalogue of messages is up to date, and none of them has a word that this field does not use."""

import re

import pytest
from tests.messages import CATALOGUE, catalogue

pytestmark = pytest.mark.no_cover

STOP_LIST = (
    r"whoever|somebody|nobody|anybody|anew|of late|heeds?|heeded|alike|lest|in vain|at odds|never was"
    r"|stands? in|(?<!there )(is|are) no (?!longer|more)[a-z]+|can(not)? be had|could( not)? be had|go on being"
    r"|(it|that) wants|what is typed|look at this run|no such thing|(is|are) told|gets? round|as if for the first time"
)


@pytest.mark.no_cover
def test_the_catalogue_is_up_to_date_and_keeps_to_the_words_of_this_field():
    found = catalogue()
    assert CATALOGUE.read_text(encoding="utf-8") == found, "run: .venv/bin/python -m tests.messages"
    strange = re.compile(rf"\b({STOP_LIST})\b", re.IGNORECASE)
    prose = (re.sub(r"\{[^{}]*\}", "{}", line) for line in found.splitlines())
    assert [line for line in prose if strange.search(line)] == []
