"""What a server says of an error to people."""

import json

import pytest

from headgate.exchange import Answer
from headgate.wire.message import in_words


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (400, {"error": {"message": "It is not valid.", "type": "invalid_request_error"}}, "400 It is not valid."),
        (
            404,
            {"type": "error", "error": {"type": "not_found_error", "message": "No such model."}},
            "404 No such model.",
        ),
        (400, {"errors": [{"message": "first"}, {"message": "second"}]}, "400 first"),
        (422, {"detail": "a field is missing"}, "422 a field is missing"),
        (400, {"error": "no\x1b[31m such\nthing"}, "400 no [31m such thing"),
        (400, {"error": {"message": 7}, "message": "outside"}, "400 outside"),
        (400, {"error": {}}, "400 validation"),
        (502, "<html>Bad Gateway</html>", "502 validation"),
        (200, {"error": {"message": "hidden in what seems well"}}, "hidden in what seems well"),
    ],
)
def test_the_sentence_stands_behind_the_status(status, body, says):
    content = body if isinstance(body, str) else json.dumps(body)
    assert in_words(Answer(status, {}, content.encode()), "validation") == says


def test_what_is_no_answer_says_nothing():
    assert in_words(None, "validation") == "validation"
