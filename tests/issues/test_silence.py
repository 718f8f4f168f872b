"""Servers that stop saying something must not freeze a key, and callers that never report must not flood it."""

from headgate.lab import plug

HEADERS = {"ratelimit-limit": "50", "ratelimit-policy": '"default";q=50;w=1', "ratelimit-reset": "1"}


def served_by(until: float, headers_until: float) -> int:
    """Calls served by a bucket of 50/s that speaks of itself only for a while."""
    client, tokens, filled_at, served = plug("adaptive"), 50.0, 0.0, 0
    now, answers = 0.0, []
    while now < until:
        while answers and answers[0][0] <= now:
            at, status, sent_at, headers = answers.pop(0)
            client.on_response(at, status, at - sent_at, headers)
        delay = client.on_send(now)
        if delay:
            now = min(now + delay, answers[0][0] if answers else until)
            continue
        tokens, filled_at = min(50.0, tokens + 50.0 * (now - filled_at)), now
        status = 200 if tokens >= 1.0 else 429
        tokens -= status == 200
        served += status == 200
        headers = HEADERS | {"ratelimit-remaining": str(int(tokens))} if now < headers_until else None
        answers.append((now + 0.1, status, now, headers))
    return served


def test_headers_that_stop_coming_are_not_followed_any_longer() -> None:
    assert served_by(until=300.0, headers_until=60.0) > 0.9 * 50.0 * 300.0


def test_without_a_single_answer_the_pace_stays_near_where_it_began() -> None:
    client, now, sent = plug("adaptive"), 0.0, 0
    while now < 20.0:
        delay = client.on_send(now)
        sent += not delay
        now += delay
    assert sent < 20 * 20
