"""``headgate run`` against a mock with three keys, calls and tokens a minute, a quota that halves, a day that is soon
spent and an outage: everything is done, nearly as fast as the quotas allow, and hardly a call is refused."""

from collections import Counter

import pytest
from bench.end_to_end import KEYS, OUTAGE, ROWS, Key, picture, play


def measured(folder, keys, outage, rows):
    """What must hold on any machine does; whether the outage was met, the share that was used, and that refused."""
    folder.mkdir()
    played = play(folder, keys, outage, rows)
    assert (played.code, played.end["done"], played.end["dead"]) == (0, rows, 0), played.said
    assert played.written == Counter(f"r{number}" for number in range(rows))
    assert (played.truth["answered"], played.truth["ids_done_twice"]) == (rows, 0)
    share, refused = played.used(keys, outage), played.refused
    print(f"{rows} rows in {played.seconds:.1f} s: {share:.1%} of what is allowed, {refused:.2%} refused")
    assert "headgate run on three keys" in picture(played, keys, outage).to_svg()
    return played.truth["failed"] > 0, share, refused


def test_everything_is_done(tmp_path):
    """How fast is judged by the long run below alone."""
    keys = (Key(1800, 60_000), Key(1800, 60_000, halves_at=2), Key(1800, 60_000, per_day=40))
    measured(tmp_path / "run", keys, (1, 1), 150)


@pytest.mark.chaos
@pytest.mark.alone
@pytest.mark.timeout(400)
def test_nearly_all_that_the_quotas_allow_is_used(tmp_path):
    met, share, refused = measured(tmp_path / "run", KEYS, OUTAGE, ROWS)
    assert met, "the outage"
    assert refused < 0.01
    assert share >= 0.95
