"""docs/page.md says every field that is sent, every way in and every bound."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from headgate.observe import snapshot
from headgate.web import app, event_stream, guard, server, view_cache
from headgate.web import guard as bodies

TEXT = (Path(__file__).parents[2] / "docs" / "page.md").read_text(encoding="utf-8")
TABLES = {
    "RunSnapshot": "field",
    "ProgressLine": "`progress`",
    "KeyLine": "`keys`",
    "CredentialLine": "`credentials`",
    "WaitLine": "`waits`",
    "DeadLine": "`dead`",
}
SENTENCES = {"EventLine": "`/api/events` gives ", "Timeline": "`/api/timelines` gives "}


def described(name):
    """What stands of it in its own table, or its own paragraph."""
    if name in SENTENCES:
        return TEXT.partition(SENTENCES[name])[2].partition("\n\n")[0]
    rows = TEXT.partition(f"| {TABLES[name]} | |\n|---|---|\n")[2].partition("\n\n")[0]
    return "\n".join(row.split("|")[1] for row in rows.splitlines())


@pytest.mark.parametrize("name", [*TABLES, *SENTENCES])
def test_every_field_is_described_and_no_other(name):
    known = {one.name for one in fields(getattr(snapshot, name))}
    told = set(re.findall(r"`(\w+)`", described(name)))
    assert known - told == set()
    if name in TABLES:
        assert told == known


def test_the_programs_run_as_they_stand(capsys):
    known = {"YourLogin": lambda page: page}
    for program in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(program, known)
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")
    (line,) = known["monitor"].snapshot().keys
    assert (line.key, line.done) == ("api.example.com", 1)
    known["page"].close()


def test_every_way_in_is_described():
    routes = re.findall(r'Route\("(/[^"{]*)"', Path(app.__file__).read_text(encoding="utf-8"))
    assert len(routes) == 8
    assert [one for one in routes if one not in TEXT] == []


def test_every_action_is_described():
    assert [one for one in app.ACTIONS if f"`{one}`" not in TEXT] == []


def test_the_bounds_are_as_described():
    assert (guard.LARGEST_HEAD, bodies.LARGEST_BODY) == (16 * 1024, 4096)
    assert (server.HEAD_TIME, bodies.BODY_TIME, event_stream.WRITE_TIME, event_stream.HEARTBEAT) == (5.0, 5.0, 5.0, 5.0)
    assert (server.MOST_CONNECTIONS, app.MOST_STREAMS) == (100, 32)
    assert (view_cache.SHORTEST_INTERVAL, view_cache.MOST_RUNS, app.MOST_CHOSEN_KEYS, app.MOST_EVENTS) == (
        0.5,
        20,
        20,
        200,
    )
