"""``headgate run --fallback``: no row is lost, none is done twice, and what it cost is what the servers counted."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter

import pytest

from headgate.cli.commands import run as run_command
from headgate.mock.llm import openai as mock_openai
from headgate.mock.providers.provider_api import Fault
from headgate.units import Outage

PRICES = ("--price", "*=1/2")


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.setenv("GOOD_KEY", "sk-good-0123456789")
    monkeypatch.setenv("OTHER_KEY", "sk-other-0123456789")
    monkeypatch.setenv("UNPAID_KEY", "unpaid-0123456789")
    monkeypatch.setattr(run_command, "RETRY_CIRCUIT_AFTER", 0.3)


@pytest.fixture
def pair(mock_api):
    """The primary and the fallback, each an API of its own."""

    def start(**primary):
        return mock_api(providers=("openai",), **primary), mock_api(providers=("openai",))

    return start


def line(number, **body):
    message = {"role": "user", "content": body.pop("content", f"Say {number}")}
    body = {"model": "gpt-4o-mini", "max_tokens": 20, "messages": [message], **body}
    return json.dumps({"custom_id": f"row-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body})


@pytest.fixture
def rows(tmp_path):
    def write(count=30, **bodies):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(line(n, **bodies.get(f"row_{n}", bodies.get("all", {}))) + "\n" for n in range(count)))
        return path

    return write


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.jsonl"


def answers(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def targets(path):
    return Counter((one["headgate"]["target"], one["headgate"]["why"]) for one in answers(path))


def counted(*apis):
    return [api.truth()["providers"]["openai"] for api in apis]


def options(primary, other, *more, key="GOOD_KEY", fallback=""):
    to = ("--to", primary.base_url("openai"), "--keys", f"env:{key}", "--store", "none", "--json", *PRICES)
    return (*to, "--fallback", f"to={other.base_url('openai')},model=long-other,keys=env:OTHER_KEY{fallback}", *more)


def label(api):
    return f"{api.url.removeprefix('http://')}/long-other"


def name(api):
    return api.url.removeprefix("http://")


def check_all(done, rows, out, headgate, *apis, count=30):
    """Every row once, and the cost as the servers have it. Returns the summary."""
    assert done.code == 0, done.err + done.out
    assert Counter(one["custom_id"] for one in answers(out)) == Counter(f"row-{n}" for n in range(count))
    assert headgate("verify", out, "--input", rows).code == 0
    truths, end = counted(*apis), json.loads(done.out.splitlines()[-1])
    assert sum(one["answered"] for one in truths) == count
    assert not any(one["ids_done_twice"] for one in truths)
    cost = sum(one["tokens_in"] + 2 * one["tokens_out"] for one in truths) / 1e6
    assert end["cost"] == pytest.approx(cost)
    assert sum(one["headgate"]["cost"] for one in answers(out)) == pytest.approx(cost)
    return end


def test_a_spend_stop(headgate, pair, rows, out):
    primary, other = pair()
    given = rows()
    done = headgate("run", given, "-o", out, *options(primary, other, key="UNPAID_KEY"))
    end = check_all(done, given, out, headgate, primary, other)
    assert targets(out) == {(label(other), "spend"): 30}
    assert end["moved"] == {label(other): {"spend": 30}}
    assert answers(out)[0]["response"]["body"]["model"] == "long-other"


def test_a_retired_model(headgate, pair, rows, out):
    primary, other = pair()
    given = rows(all={"model": "missing-model"})
    done = headgate("run", given, "-o", out, *options(primary, other, "--workers", "2"))
    check_all(done, given, out, headgate, primary, other)
    assert targets(out) == {(label(other), "unknown_model"): 30}
    assert counted(primary)[0]["asked"] < 10, "not row by row to the end"


def test_a_row_that_is_too_long_goes_alone(headgate, pair, rows, out, monkeypatch):
    monkeypatch.setattr(mock_openai, "CONTEXT", 100)
    primary, other = pair()
    given = rows(row_7={"content": "word " * 200})
    done = headgate("run", given, "-o", out, *options(primary, other))
    end = check_all(done, given, out, headgate, primary, other)
    assert targets(out) == {(label(other), "too_long"): 1, (name(primary), None): 29}
    moved = next(one for one in answers(out) if one["headgate"]["why"])
    assert (moved["custom_id"], moved["headgate"]["attempts"]) == ("row-7", 2)
    assert end["moved"] == {label(other): {"too_long": 1}}


def test_an_outage_and_the_primary_again(headgate, mock_api, rows, out):
    primary = mock_api(providers=("openai",), outages=(Outage(0.0, 1.0),))
    other = mock_api(providers=("openai",), rate="100/s", latency=0.02)
    given = rows(300)
    done = headgate("run", given, "-o", out, *options(primary, other, "--limits", "requests=1000/s"))
    check_all(done, given, out, headgate, primary, other, count=300)
    found = targets(out)
    assert found[label(other), "circuit_open"] > 20
    assert found[name(primary), None] > 20, "the primary is used again when it is back"


def test_a_tier_that_stays_full_hands_over_all_its_rows(headgate, pair, rows, out):
    """Not one row for each of its growing rests."""
    primary, other = pair()
    given = rows(all={"model": "busy-model", "service_tier": "flex"})
    done = headgate("run", given, "-o", out, *options(primary, other))
    check_all(done, given, out, headgate, primary, other)
    assert targets(out) == {(label(other), "capacity"): 30}
    assert counted(primary)[0]["asked"] < 30


def test_only_the_reasons_that_were_given(headgate, pair, rows, out):
    primary, other = pair()
    given = rows()
    done = headgate("run", given, "-o", out, *options(primary, other, key="UNPAID_KEY", fallback=",on=too_long"))
    assert done.code == 4
    assert counted(other)[0]["asked"] == 0


def test_refused_content_moves_by_explicit_choice_alone(headgate, pair, rows, out):
    primary, other = pair()
    error = {"error": {"message": "no", "type": "invalid_request_error", "param": None, "code": "content_filter"}}
    filtered = {"choices": [{"finish_reason": "content_filter", "message": {"content": None}}], "usage": None}
    primary.services["openai"].faults.add(Fault(status=400, body=error))
    primary.services["openai"].faults.add(Fault(status=200, body=filtered))
    done = headgate("run", rows(2), "-o", out, *options(primary, other, fallback=",on=refused_content"))
    assert done.code == 0, done.out
    assert targets(out) == {(label(other), "refused_content"): 2}
    primary.services["openai"].faults.add(Fault(status=400, body=error))
    plain = out.with_name("plain.jsonl")
    assert headgate("run", rows(1), "-o", plain, *options(primary, other)).code == 3
    assert targets(plain) == {(name(primary), None): 1}


def test_a_second_fallback_takes_what_the_first_cannot(headgate, pair, mock_api, rows, out):
    primary, other = pair()
    third = mock_api(providers=("openai",))
    given = rows()
    more = ("--fallback", f"to={third.base_url('openai')},keys=env:OTHER_KEY")
    changed = [one.replace("long-other", "missing-other") for one in options(primary, other, *more, key="UNPAID_KEY")]
    done = headgate("run", given, "-o", out, *changed)
    check_all(done, given, out, headgate, primary, other, third)
    assert {target for target, _ in targets(out)} == {name(third)}
    assert {one["response"]["body"]["model"] for one in answers(out)} == {"gpt-4o-mini"}, "the rows' own model"


def test_an_interrupted_run_goes_on_where_rows_were(headgate, headgate_process, mock_api, rows, out, monkeypatch):
    """Rows that the primary has refused for good are not sent there again."""
    monkeypatch.setattr(mock_openai, "CONTEXT", 100)
    primary = mock_api(providers=("openai",))
    other = mock_api(providers=("openai",), rate="20/s", latency=0.05)
    given = rows(60, all={"content": "word " * 200})
    process = headgate_process("run", given, "-o", out, *options(primary, other))
    deadline = time.monotonic() + 60
    while counted(other)[0]["answered"] < 10 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 4
    refused = counted(primary)[0]["refused"]
    assert refused < 120
    done = headgate("run", given, "-o", out, *options(primary, other))
    end = check_all(done, given, out, headgate, primary, other, count=60)
    assert targets(out) == {(label(other), "too_long"): 60}
    assert end["moved"] == {label(other): {"too_long": 60}}, "of both runs"
    assert counted(primary)[0]["refused"] == 60, "each once"


class TestRefusedBeforeAnythingIsSent:
    @pytest.mark.parametrize(
        ("fallback", "says"),
        [
            ("to=anthropic,model=claude-haiku-4-5,keys=env:GOOD_KEY", "cannot be translated for anthropic"),
            ("to=groq,model=llama-3.3-70b-versatile", "groq needs a key: set the environment variable GROQ_API_KEY"),
            ("to=nonsense", "unknown target"),
            ("model=m,on=money", "is not a reason to move"),
            ("model=m,keys=sk-secret-0123456789", "a key itself is not taken here"),
            ("model=m,query=a=b", "add to=..."),
            ("to=http://127.0.0.1:1,header=api-key: abc", "name the environment variable"),
        ],
    )
    def test_what_cannot_be(self, headgate, pair, rows, out, monkeypatch, fallback, says):
        monkeypatch.delenv("GROQ_API_KEY", raising=False)
        primary, _ = pair()
        to = ("--to", primary.base_url("openai"), "--keys", "env:GOOD_KEY", "--store", "none")
        done = headgate("run", rows(1), "-o", out, *to, "--fallback", fallback)
        assert done.code == 2
        assert says in " ".join(done.err.split())
        assert "sk-secret" not in done.err
        assert counted(primary)[0]["asked"] == 0

    def test_a_cap_on_money_without_the_fallbacks_price(self, headgate, pair, rows, out):
        primary, _ = pair()
        to = ("--to", primary.base_url("openai"), "--keys", "env:GOOD_KEY", "--store", "none", "--max-cost", "1")
        done = headgate("run", rows(1), "-o", out, *to, "--price", "gpt-*=1/2", "--fallback", "other")
        assert done.code == 2
        assert "max_cost needs a price" in " ".join(done.err.split())

    def test_a_project_file_may_not_set_it(self, headgate, rows, out, tmp_path, monkeypatch):
        (tmp_path / "headgate.toml").write_text('[run]\nfallback = ["other"]\n')
        monkeypatch.chdir(tmp_path)
        done = headgate("run", rows(1), "-o", out, "--to", "http://127.0.0.1:1")
        assert done.code == 2
        assert '"fallback", which a file that is found automatically may not set' in " ".join(done.err.split())


def test_a_file_that_was_chosen_may_have_tables(headgate, pair, rows, out, tmp_path):
    primary, other = pair()
    chosen = tmp_path / "chosen.toml"
    chosen.write_text(
        f'[[run.fallback]]\nto = "{other.base_url("openai")}"\nmodel = "long-other"\nkeys = ["env:OTHER_KEY"]\n'
        'on = ["spend"]\n'
    )
    to = ("--to", primary.base_url("openai"), "--keys", "env:UNPAID_KEY", "--store", "none", "--config", chosen)
    done = headgate("run", rows(), "-o", out, *to)
    assert done.code == 0, done.err
    assert targets(out) == {(label(other), "spend"): 30}


@pytest.mark.chaos
@pytest.mark.timeout(240)
def test_an_outage_of_a_minute(headgate, mock_api, rows, out):
    primary = mock_api(providers=("openai",), outages=(Outage(2.0, 60.0),), rate="50/s", latency=0.05)
    other = mock_api(providers=("openai",), rate="20/s", latency=0.05)
    given = rows(3_000)
    done = headgate("run", given, "-o", out, *options(primary, other))
    check_all(done, given, out, headgate, primary, other, count=3_000)
    found = targets(out)
    assert found[label(other), "circuit_open"] > 500
    assert found[name(primary), None] > 500
