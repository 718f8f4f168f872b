import pytest

from headgate.units import Outage, Rate, Step, read_duration, read_outage, read_rate, read_step


@pytest.mark.parametrize(
    ("text", "seconds"), [("40ms", 0.04), ("1.5s", 1.5), ("2min", 120.0), ("2m", 120.0), ("1h", 3600.0), ("7", 7.0)]
)
def test_durations_are_read_in_every_unit(text, seconds):
    assert read_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50/s", Rate(50.0)), ("600/min", Rate(600.0, 60.0)), ("200/10s", Rate(200.0, 10.0)), ("0.5 / s", Rate(0.5))],
)
def test_rates_keep_their_window(text, rate):
    assert read_rate(text) == rate


def test_steps_and_outages():
    assert read_step("0.5@10s") == Step(0.5, 10.0)
    assert read_outage("12s+500ms") == Outage(12.0, 0.5)


@pytest.mark.parametrize("value", [Rate(50.0), Rate(600.0, 60.0), Rate(200.0, 10.0)])
def test_what_is_printed_can_be_read_again(value):
    assert read_rate(str(value)) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_duration, "soon"),
        (read_duration, "-3s"),
        (read_duration, "nan"),
        (read_duration, "40 days and nights"),
        (read_duration, "32day"),
        (read_rate, "50"),
        (read_rate, "0/s"),
        (read_rate, "1e3/s"),
        (read_rate, "5/fortnight"),
        (read_rate, "1000001/s"),
        (read_rate, "5/0s"),
        (read_step, "10s"),
        (read_step, "0@10s"),
        (read_step, "1001@10s"),
        (read_outage, "12s"),
        (read_outage, "a+b"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(read, text):
    with pytest.raises(ValueError, match=r"\w+ .*\w"):
        read(text)
