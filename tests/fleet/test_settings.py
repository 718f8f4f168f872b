"""Options of a fleet: what is refused where the job is started."""

from __future__ import annotations

import json
import pickle

import pytest

from headgate.errors import ConfigError
from headgate.fleet.settings import RowSettings

TO = "http://127.0.0.1:1/v1"
SECRET = "sk-very-secret-0123456789"


def test_settings_travel():
    settings = RowSettings(to=TO, template={"x": "{text}"}, price="m=1/2", limits="requests=5/s", timeout="2min")
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert (settings.timeout, settings.price, settings.limits) == (120.0, {"m": "1/2"}, {"requests": ["5/s"]})


def test_a_run_without_a_name_gets_one():
    assert RowSettings(to=TO).run != RowSettings(to=TO).run


@pytest.mark.parametrize("keys", [SECRET, [SECRET], "env:", "cmd:print", [7]])
def test_literal_keys_are_refused_and_not_repeated(keys):
    with pytest.raises(ConfigError, match="env:NAME or file:PATH") as caught:
        RowSettings(to="openai", keys=keys)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"run": "a b"}, "run must be a name"),
        ({"run": "../x"}, "run must be a name"),
        ({"format": "csv"}, "format='csv' must be one of"),
        ({"answers": "redis"}, 'needs store="redis'),
        ({"answers_bytes": 0}, "answers_bytes=0"),
        ({"max_cost": 1.0}, "max_cost needs prices"),
        ({"max_tokens": 100}, "hold over all workers"),
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"template": 5}, "template must be a mapping"),
        ({"template": {"x": object()}}, "template must be a mapping"),
        ({"template": "no-such-file.json"}, "cannot read the template"),
        ({"limits": "requests=fast"}, "limits"),
        ({"price": "cheap"}, "is not auto or MODEL=IN/OUT"),
        ({"store": ""}, "store must be"),
        ({"to": "opena"}, "did you mean"),
        ({"workers": 5, "max_attempts": 0}, "max_attempts"),
    ],
)
def test_wrong_options_are_refused_at_once(options, said):
    with pytest.raises(ConfigError, match=said):
        RowSettings(**{"to": TO, **options})


def test_a_template_is_read_where_the_job_starts(tmp_path):
    file = tmp_path / "ask.json"
    file.write_text(json.dumps({"x": "{text}"}))
    settings = RowSettings(to=TO, template=str(file))
    file.unlink()
    assert settings.parsed_template().names == ("text",)


def test_columns_that_would_be_replaced_or_are_missing_are_named():
    settings = RowSettings(to=TO, template={"x": "{text}", "y": "{meta.a}"}, id_column="id")
    settings.check_columns(["id", "text", "meta"])
    with pytest.raises(ConfigError, match="already have a column 'error'"):
        settings.check_columns(["id", "text", "meta", "error"])
    with pytest.raises(ConfigError, match="id_column='id' is not a column"):
        settings.check_columns(["text", "meta"])
    with pytest.raises(ConfigError, match="text"):
        settings.check_columns(["id", "meta"])
    assert RowSettings(to=TO, prefix="a_").columns[0] == "a_response"


def test_answers_are_in_the_store_where_it_is_a_server():
    assert RowSettings(to=TO, store="redis://cache").answers == "redis"
    assert RowSettings(to=TO, store="machine").answers == "none"


def test_a_missing_key_says_where_workers_look(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"spark\.executorEnv"):
        RowSettings(to="openai").credentials()
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert [one.secret for one in RowSettings(to="openai").credentials()] == [SECRET]
