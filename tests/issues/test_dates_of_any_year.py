"""Where the platform's calendar ends early (2038, 3000), a ``Date`` beyond its end raised out of reading an answer."""

from __future__ import annotations

import time

import pytest

from headgate import wire
from headgate.core.decision import Outcome

QUOTA = b'{"error": {"code": 403, "errors": [{"reason": "dailyLimitExceeded", "domain": "usageLimits"}]}}'


@pytest.mark.parametrize("date", ["Fri, 31 Dec 9999 23:59:59 GMT", "Sat, 01 Jan 1938 00:00:00 GMT"])
def test_a_date_beyond_the_platforms_calendar_is_read(monkeypatch: pytest.MonkeyPatch, date: str) -> None:
    def gmtime(instant: float) -> time.struct_time:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(time, "gmtime", gmtime)
    assert wire.retry_after("Sunday, 06-Nov-94 08:49:37 GMT", wall=1.8e9, date=date) is not None
    assert wire.read(403, {"Date": date}, QUOTA, wall=1.8e9).outcome is Outcome.QUOTA_EXHAUSTED
