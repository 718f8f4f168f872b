"""What an answer says of a window was taken for another window."""

import pytest

from headgate.wire import read


@pytest.mark.parametrize(("remaining", "reset"), [("588", "40s"), ("590", "59.5s"), ("570", "2m30s")])
def test_no_hour_is_read_into_openais_headers(remaining, reset):
    """600 calls a minute counted by the clock, with 12 used and 40 s to go, were read as 600 an hour."""
    headers = {
        "x-ratelimit-limit-requests": "600",
        "x-ratelimit-remaining-requests": remaining,
        "x-ratelimit-reset-requests": reset,
    }
    (limit,) = read(200, headers, wall=1.8e9).limits
    assert limit.window == (None if "m" in reset else 60)
