"""``headgate run`` sends a file, writes the answers, goes on where it stopped, and says what to do next."""

import gzip
import json
import os
import re
import signal
import time
import urllib.request
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate.batch import stalls
from headgate.lab.traces.reader import read_trace
from headgate.observe.exporters.metrics import METRICS

KEY = "sk-mock-do-not-show-0123456789"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("MOCK_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "")


@pytest.fixture
def mock(mock_api):
    """A language model's API; ``mock()`` gives where it is and what it has seen."""

    def start(**options):
        api = mock_api(providers=("openai",), **options)
        return SimpleNamespace(url=api.base_url("openai"), truth=lambda: api.truth()["providers"]["openai"])

    return start


def line(number, **body):
    body = {
        "model": "gpt-4o-mini",
        "max_tokens": 20,
        "messages": [{"role": "user", "content": f"Say {number}"}],
        **body,
    }
    return json.dumps({"custom_id": f"row-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body})


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(line(number) + "\n" for number in range(30)))
    return path


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.jsonl"


def answers(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def names(path):
    return Counter(one["custom_id"] for one in answers(path))


ALL = Counter(f"row-{number}" for number in range(30))


def to(server, *more):
    return ("--to", server.url, "--keys", "env:MOCK_KEY", *more)


NOON = 20_000.5 * 86_400
"""So that a spent day is a long wait, whenever the test runs."""


class TestGoing:
    def test_every_row_is_answered_once(self, headgate, mock, rows, out):
        server = mock()
        done = headgate("run", rows, "-o", out, *to(server))
        assert done.code == 0, done.err
        assert done.out.splitlines()[-1] == f"All rows are done. Check with: headgate verify {out}"
        assert names(out) == ALL
        assert all(one["response"]["status_code"] == 200 and one["error"] is None for one in answers(out))
        assert server.truth()["answered"] == 30
        assert headgate("verify", out, "--input", rows).code == 0

    def test_the_same_command_again_sends_nothing(self, headgate, mock, rows, out):
        server = mock()
        headgate("run", rows, "-o", out, *to(server))
        before = out.read_bytes()
        again = headgate("run", rows, "-o", out, *to(server))
        assert again.code == 0
        assert "30 of them in earlier runs; 0 calls" in again.out
        assert (server.truth()["asked"], out.read_bytes()) == (30, before)

    def test_rows_that_were_added_are_done_by_the_next_run(self, headgate, mock, rows, out):
        server = mock()
        headgate("run", rows, "-o", out, *to(server))
        with rows.open("a") as file:
            file.write(line("new") + "\n")
        assert headgate("run", rows, "-o", out, *to(server)).code == 0
        assert names(out) == ALL + Counter(["row-new"])

    def test_an_output_that_was_removed_is_written_anew_without_a_call(self, headgate, mock, rows, out):
        server = mock()
        headgate("run", rows, "-o", out, *to(server))
        out.unlink()
        assert headgate("run", rows, "-o", out, *to(server)).code == 0
        assert (names(out), server.truth()["asked"]) == (ALL, 30)


class TestFormats:
    def test_a_csv_with_a_template(self, headgate, mock, tmp_path, out):
        (tmp_path / "people.csv").write_text('name,note\nAda,"likes ""quotes"", and\nlines"\nBo,\n')
        template = {"model": "m", "messages": [{"role": "user", "content": "Greet {name}: {note}"}]}
        (tmp_path / "ask.json").write_text(json.dumps(template))
        done = headgate("run", tmp_path / "people.csv", "-o", out, "--template", tmp_path / "ask.json", *to(mock()))
        assert done.code == 0, done.err
        assert names(out) == Counter(["row-1", "row-2"])

    def test_plain_lines_go_where_path_says(self, headgate, mock, tmp_path, out):
        source = tmp_path / "texts.jsonl"
        source.write_text("".join(json.dumps({"model": "e", "input": f"text {n}"}) + "\n" for n in range(3)))
        done = headgate("run", source, "-o", out, "--path", "/v1/embeddings", *to(mock()))
        assert done.code == 0, done.err
        assert {one["response"]["body"]["object"] for one in answers(out)} == {"list"}

    def test_packed_files_both_ways(self, headgate, mock, rows, tmp_path):
        packed, out = tmp_path / "rows.jsonl.gz", tmp_path / "out.jsonl.gz"
        packed.write_bytes(gzip.compress(rows.read_bytes()))
        assert headgate("run", packed, "-o", out, *to(mock())).code == 0
        text = gzip.decompress(out.read_bytes()).decode()
        assert Counter(json.loads(one)["custom_id"] for one in text.splitlines()) == ALL

    def test_a_pipe_in_and_out(self, headgate_process, mock, rows):
        server = mock()
        process = headgate_process("run", "-", "-o", "-", *to(server))
        said, complaint = process.communicate(rows.read_text(), timeout=60)
        assert process.returncode == 0, complaint
        assert Counter(json.loads(one)["custom_id"] for one in said.splitlines()) == ALL
        assert complaint.splitlines()[-1] == "All rows are done."


class TestBrokenRows:
    def test_one_stops_the_run_and_can_be_put_right(self, headgate, mock, rows, out):
        server, good = mock(), rows.read_text()
        rows.write_text(good.replace(line(20), '{"custom_id": "row-20", "body": '))
        stopped = headgate("run", rows, "-o", out, *to(server))
        assert stopped.code == 4
        last = stopped.out.splitlines()[-1]
        assert "line 21: not valid JSON" in last
        assert "--on-broken dead" in last
        assert "row-20" not in names(out)
        rows.write_text(good)
        assert headgate("run", rows, "-o", out, *to(server)).code == 0
        assert (names(out), server.truth()["asked"]) == (ALL, 30)

    def test_they_can_be_written_off_and_are_never_sent(self, headgate, mock, rows, out):
        server = mock()
        rows.write_text(rows.read_text() + "nonsense\n" + line("away", model="x").replace("/v1/chat", "//evil.example"))
        done = headgate("run", rows, "-o", out, "--on-broken", "dead", *to(server))
        assert done.code == 3
        assert "30 done, 2 failed (2 invalid)" in done.out
        assert f"headgate retry {out}" in done.out.splitlines()[-1]
        dead = [one for one in answers(out) if one["error"]]
        assert sorted(one["error"]["code"] for one in dead) == ["invalid", "invalid"]
        assert any("line 31: not valid JSON" in one["error"]["message"] for one in dead)
        assert server.truth()["asked"] == 30

    def test_a_row_above_a_known_limit_is_dead_at_once(self, headgate, mock, rows, out):
        server = mock()
        with rows.open("a") as file:
            file.write(line("huge", max_tokens=9000) + "\n")
        done = headgate("run", rows, "-o", out, "--limits", "tokens=8000/min", *to(server))
        assert done.code == 3
        (dead,) = [one for one in answers(out) if one["error"]]
        assert (dead["custom_id"], dead["error"]["code"]) == ("row-huge", "too_large")

    def test_an_answer_that_is_an_error_is_kept_whole(self, headgate, mock, rows, out):
        rows.write_text(line(1, model="missing-model") + "\n")
        assert headgate("run", rows, "-o", out, *to(mock())).code == 3
        (one,) = answers(out)
        assert one["response"]["status_code"] == 404
        assert one["response"]["body"]["error"]["code"] == "model_not_found"


class TestChanges:
    """What is not the same as when the ledger was made is explained, before anything is sent."""

    def changed(self, headgate, server, sent, *arguments):
        said = headgate("run", *arguments)
        assert said.code == 2, said.out
        assert server.truth()["asked"] == sent
        return said.err

    def test_a_row_of_the_input(self, headgate, mock, rows, out):
        server = mock()
        headgate("run", rows, "-o", out, *to(server))
        rows.write_text(rows.read_text().replace("Say 7", "Say 8"))
        assert "row 8 of the input ('row-7') has changed" in self.changed(
            headgate, server, 30, rows, "-o", out, *to(server)
        )

    def test_the_target(self, headgate, mock, rows, out):
        server = mock()
        headgate("run", rows, "-o", out, *to(server))
        said = self.changed(headgate, server, 30, rows, "-o", out, "--to", "http://127.0.0.1:9/v1")
        assert "the target was" in said

    def test_the_template(self, headgate, mock, tmp_path, out):
        server, ask = mock(), tmp_path / "ask.json"
        (tmp_path / "p.csv").write_text("name\nAda\n")
        ask.write_text('{"model": "m", "messages": [{"role": "user", "content": "Greet {name}"}]}')
        arguments = (tmp_path / "p.csv", "-o", out, "--template", ask, *to(server))
        assert headgate("run", *arguments).code == 0
        ask.write_text('{"model": "m", "messages": [{"role": "user", "content": "Insult {name}"}]}')
        assert "the template was" in self.changed(headgate, server, 1, *arguments)

    def test_an_output_of_somebody_else_is_not_touched(self, headgate, mock, rows, out):
        server = mock()
        out.write_text("precious\n")
        said = self.changed(headgate, server, 0, rows, "-o", out, *to(server))
        assert "exists and was not written by this run" in said
        assert out.read_text() == "precious\n"

    def test_another_output_is_not_cut_back_to_this_ones_length(self, headgate, mock, rows, out, tmp_path):
        server, other = mock(), tmp_path / "other.jsonl"
        headgate("run", rows, "-o", out, *to(server))
        other.write_text("precious\n" * 10_000)
        said = self.changed(headgate, server, 30, rows, "-o", other, "--ledger", f"{out}.ledger", *to(server))
        assert "the output was" in said
        assert other.stat().st_size == 90_000

    def test_an_input_that_has_become_shorter(self, headgate, mock, rows, out):
        server = mock(per_day=10)
        whole = rows.read_text()
        rows.write_text(whole + "broken")
        headgate("run", rows, "-o", out, "--max-tokens", "100", *to(server))
        rows.write_text("".join(whole.splitlines(keepends=True)[:2]))
        said = headgate("run", rows, "-o", out, *to(server))
        assert said.code == 4
        assert "the input has 2 rows" in said.out.splitlines()[-1]


class TestTrouble:
    def test_a_wrong_key_costs_no_row(self, headgate, mock, rows, out, monkeypatch):
        server = mock()
        monkeypatch.setenv("MOCK_KEY", "revoked-key")
        wrong = headgate("run", rows, "-o", out, *to(server))
        assert wrong.code == 4
        assert "No key is accepted" in wrong.out.splitlines()[-1]
        monkeypatch.setenv("MOCK_KEY", KEY)
        assert headgate("run", rows, "-o", out, *to(server)).code == 0
        assert names(out) == ALL

    def test_no_key_at_all(self, headgate, mock, rows, out):
        server = mock()
        said = headgate("run", rows, "-o", out, "--to", server.url)
        assert said.code == 4
        assert "--keys" in said.out.splitlines()[-1]
        assert "0 done" in said.out
        assert "dead" not in said.out

    def test_a_vendor_whose_key_is_not_set(self, headgate, rows, out):
        said = headgate("run", rows, "-o", out, "--to", "openai")
        assert said.code == 2
        assert "OPENAI_API_KEY" in said.err

    def test_a_key_on_the_command_line_is_not_taken_nor_repeated(self, headgate, rows, out):
        said = headgate("run", rows, "-o", out, "--to", "openai", "--keys", KEY)
        assert said.code == 2
        assert KEY not in said.err + said.out

    def test_the_key_is_nowhere(self, headgate, mock, rows, out, tmp_path):
        said = headgate("run", rows, "-o", out, "--json", "--trace", tmp_path / "t.jsonl", *to(mock()))
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
        assert KEY not in said.out + said.err
        assert KEY.encode() not in kept

    def test_a_server_that_is_not_there(self, headgate, rows, out, monkeypatch):
        monkeypatch.setattr(stalls, "NEVER_ANSWERED", 1.0)
        said = headgate("run", rows, "-o", out, "--to", "http://127.0.0.1:9/v1")
        assert said.code == 4
        last = said.out.splitlines()[-1]
        assert "cannot be reached" in last
        assert "Re-run to resume" in last

    def test_a_full_disk_under_the_output(self, headgate, mock, rows, tmp_path):
        if not os.path.exists("/dev/full"):
            pytest.skip("needs /dev/full")
        said = headgate("run", rows, "-o", "/dev/full", "--ledger", tmp_path / "l.ledger", *to(mock()))
        assert said.code == 4
        assert "the disk is full" in said.out.splitlines()[-1]
        assert "safe in the ledger" in said.out.splitlines()[-1]

    @pytest.mark.skipif(os.name == "nt", reason="needs limits on files")
    def test_a_full_disk_under_the_ledger(self, headgate, headgate_process, mock, out, tmp_path):
        import resource

        rows = tmp_path / "many.jsonl"
        rows.write_text("".join(line(number) + "\n" for number in range(300)))
        server = mock()
        little = (200 * 1024, resource.RLIM_INFINITY)
        process = headgate_process(
            "run", rows, "-o", out, *to(server), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, little)
        )
        said, complaint = process.communicate(timeout=60)
        assert process.returncode == 4, complaint
        assert "the disk is full" in said.splitlines()[-1]
        assert headgate("run", rows, "-o", out, *to(server)).code == 0
        assert names(out) == Counter(f"row-{number}" for number in range(300))

    def test_a_folder_that_is_not_there(self, headgate, mock, rows, tmp_path):
        server = mock()
        said = headgate("run", rows, "-o", tmp_path / "no" / "out.jsonl", *to(server))
        assert said.code == 2
        assert "there is no folder" in said.err
        assert server.truth()["asked"] == 0

    def test_a_folder_that_is_read_only(self, headgate, mock, rows, tmp_path):
        folder = tmp_path / "ro"
        folder.mkdir(mode=0o500)
        if os.access(folder, os.W_OK):  # root may write anywhere but where the kernel keeps its own
            folder = Path("/sys")
        said = headgate("run", rows, "-o", folder / "out.jsonl", *to(mock()))
        assert said.code == 2
        assert "permissions" in said.err


class TestBounds:
    def test_nothing_starts_that_could_cost_too_much(self, headgate, mock, rows, out):
        server = mock()
        price = ("--price", "gpt-4o*=1000/1000")
        stopped = headgate("run", rows, "-o", out, *price, "--max-cost", "0.3", "--workers", "1", *to(server))
        assert stopped.code == 4
        assert "--max-cost" in stopped.out.splitlines()[-1]
        told = json.loads(headgate("status", out, "--json").out)
        assert 0 < told["cost"] <= 0.3
        assert headgate("run", rows, "-o", out, *price, "--max-cost", "100", *to(server)).code == 0
        assert names(out) == ALL

    def test_a_cap_on_cost_needs_prices(self, headgate, rows, out):
        said = headgate("run", rows, "-o", out, "--to", "http://127.0.0.1:9", "--max-cost", "1")
        assert said.code == 2
        assert "--price" in said.err
        said = headgate("run", rows, "-o", out, "--to", "http://127.0.0.1:9", "--max-cost", "1", "--price", "other=1/2")
        assert said.code == 4
        assert "line 1: no price for model 'gpt-4o-mini'" in said.out

    def test_a_deadline_ends_it(self, headgate, mock, rows, out, tmp_path):
        server, report = mock(rate="600/min"), tmp_path / "run.md"
        ends = ("--limits", "requests=600/min", "--deadline", "500ms", "--report", report)
        stopped = headgate("run", rows, "-o", out, *ends, *to(server))
        assert stopped.code == 4
        assert "Stopped at the deadline" in stopped.out.splitlines()[-1]
        assert "Stopped at the deadline" in report.read_text(encoding="utf-8")
        assert len(answers(out)) < 30  # perhaps none, where starting took as long

    def test_a_spent_day_says_when_to_come_back(self, headgate, mock, rows, out):
        server = mock(per_day=12, wall=lambda: NOON)
        stopped = headgate("run", rows, "-o", out, *to(server))
        assert stopped.code == 4
        assert "Rate limited until" in stopped.out.splitlines()[-1]
        assert len(answers(out)) == 12
        assert "0 failed" not in stopped.out.replace("30 failed", "")

    def test_a_used_up_limit_on_tokens_is_named_with_its_end(self, headgate, mock, rows, out):
        limits = ("--limits", "tokens=100/h", "--store", "none")
        stopped = headgate("run", rows, "-o", out, *limits, *to(mock()))
        assert stopped.code == 4
        last = stopped.out.splitlines()[-1]
        assert re.search(r"Rate limited until \d\d:\d\d \((\d\d min|1 h)\)", last)
        assert "(waiting for the known limit of 100 tokens per hour). Re-run" in last


class TestTelling:
    def test_a_plan_sends_nothing(self, headgate, mock, rows, out):
        server = mock()
        with rows.open("a") as file:
            file.write(line("huge", max_tokens=9000) + "\nnonsense\n")
        page = headgate(
            "run",
            rows,
            "-o",
            out,
            "--plan",
            "--limits",
            "requests=10/min,tokens=8000/min",
            "--price",
            "gpt-4o-mini=1/2",
            *to(server),
        )
        assert page.code == 0
        assert "32 rows" in page.out
        assert "at least 180.0 s, limited by requests" in page.out
        assert "1 row would fail at once, above the limit on tokens: line 31" in page.out
        assert "line 32: not valid JSON" in page.out
        assert page.out.splitlines()[-1].startswith("Nothing was sent.")
        assert (server.truth()["asked"], out.exists()) == (0, False)

    def test_a_plan_needs_no_key_and_speaks_json(self, headgate, rows, out):
        told = json.loads(headgate("run", rows, "-o", out, "--to", "openai", "--plan", "--json").out)
        assert (told["rows"], told["seconds"], told["models"]) == (30, None, {"gpt-4o-mini": 30})
        assert told["output_tokens"] == 600

    def test_json_lines(self, headgate, mock, rows, out):
        said = headgate("run", rows, "-o", out, "--json", *to(mock()))
        last = json.loads(said.out.splitlines()[-1])
        assert (last["event"], last["exit_code"], last["done"], last["calls"]) == ("end", 0, 30, 30)

    def test_quiet_says_one_line(self, headgate, mock, rows, out):
        said = headgate("run", rows, "-o", out, "-q", *to(mock()))
        assert (len(said.out.splitlines()), said.err) == (1, "")

    def test_a_recording_for_the_simulator(self, headgate, mock, rows, out, tmp_path):
        headgate("run", rows, "-o", out, "--trace", tmp_path / "t.jsonl", "--workers", "5", *to(mock()))
        trace = read_trace(tmp_path / "t.jsonl")
        assert (trace.is_whole, len(trace.calls), trace.heading.calls, trace.heading.workers) == (True, 30, 30, 5)
        assert {call.status for call in trace.calls} == {200}
        assert trace.labels == {1: "MOCK_KEY"}

    def test_a_configuration_file(self, headgate, mock, rows, out, tmp_path):
        server, config = mock(), tmp_path / "run.toml"
        config.write_text(
            f'to = "{server.url}"\nkeys = "env:MOCK_KEY"\nmax-attempts = 5\noutput = "{out}"\njson = true\n'
            'limits = {requests = "6000/min"}\n[price]\n"gpt-4o-mini" = "1/2"\n'
        )
        said = headgate("run", rows, "--config", config)
        assert said.code == 0, said.err
        assert json.loads(said.out.splitlines()[-1])["cost"] > 0
        assert names(out) == ALL

    def test_a_word_it_does_not_know_in_a_configuration_file(self, headgate, rows, out, tmp_path):
        (tmp_path / "run.toml").write_text("max_costs = 3\n")
        said = headgate("run", rows, "-o", out, "--config", tmp_path / "run.toml")
        assert said.code == 2
        assert "an unknown option 'max_costs'" in said.err

    @pytest.mark.parametrize(
        ("option", "value", "like"),
        [
            ("--limits", "500", "requests=500/min"),
            ("--limits", "cats=5/min", "requests=500/min"),
            ("--workers", "many", "auto"),
            ("--deadline", "soon", "2min"),
            ("--price", "gpt", "MODEL=IN/OUT"),
            ("--to", "ftp://x", "http(s)://host"),
            ("--template", "/nowhere/t.json", "cannot read"),
        ],
    )
    def test_what_is_not_understood_is_told_with_the_right_form(self, headgate, rows, out, option, value, like):
        rest = () if option == "--to" else ("--to", "http://127.0.0.1:9")
        said = headgate("run", rows, "-o", out, *rest, option, value)
        assert said.code == 2
        assert like in said.err


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C as POSIX sends it")
class TestInterrupted:
    def start(self, headgate_process, server, rows, out):
        process = headgate_process("run", rows, "-o", out, "--workers", "4", *to(server))
        give_up_at = time.monotonic() + 30
        while server.truth()["asked"] < 4:
            assert time.monotonic() < give_up_at
            time.sleep(0.02)
        return process

    def test_once_finishes_what_is_under_way(self, headgate, headgate_process, mock, rows, out):
        server = mock(latency=1.0)
        process = self.start(headgate_process, server, rows, out)
        process.send_signal(signal.SIGINT)
        said, complaint = process.communicate(timeout=60)
        assert process.returncode == 4, complaint
        assert said.splitlines()[-1] == "Stopped. Re-run to resume."
        truth = server.truth()
        assert truth["asked"] == truth["answered"] == len(answers(out)) == 4
        assert headgate("run", rows, "-o", out, *to(server)).code == 0
        assert (names(out), server.truth()["asked"]) == (ALL, 30)

    def test_twice_leaves_at_once_and_loses_nothing(self, headgate, headgate_process, mock, rows, out):
        server = mock(latency=60.0)
        process = self.start(headgate_process, server, rows, out)
        began_at = time.monotonic()
        process.send_signal(signal.SIGINT)
        while "Stopping" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        assert time.monotonic() - began_at < 50.0, "the calls that are out would take longer"
        assert process.returncode == 4
        assert said.splitlines()[-1] == "Stopped. Re-run to resume."
        told = json.loads(headgate("status", out, "--json").out)
        assert (told["done"], told["dead"], told["open"], told["processes"]) == (0, 0, 30, [])


def test_a_run_is_told_in_one_file_at_its_end(headgate, mock, rows, out, tmp_path):
    server = mock()
    with rows.open("a") as file:
        file.write(line(30).replace("/v1/chat/completions", "/v1/nothing") + "\n")
    done = headgate("run", rows, "-o", out, *to(server), "--report", tmp_path / "run.md")
    assert done.code == 3, done.err
    report = (tmp_path / "run.md").read_text(encoding="utf-8")
    assert "30 of 31 rows" in report
    assert "| invalid: 404 not found: /openai/v1/nothing; " in report
    assert "/v1/ | 1 | row-30 |" in report
    assert "MOCK\\_KEY" in report
    assert KEY not in report + done.err
    same = headgate("run", rows, "-o", "same.md", *to(server), "--report", "same.md")
    assert "--report and --output are the same file" in same.err


def test_a_run_that_cannot_begin_leaves_an_earlier_report_alone(headgate, mock, rows, out, tmp_path):
    (tmp_path / "run.md").write_text("as it was")
    out.mkdir()
    said = headgate("run", rows, "-o", out, *to(mock()), "--report", tmp_path / "run.md")
    assert said.code == 2
    assert (tmp_path / "run.md").read_text() == "as it was"


def test_every_metric_is_scraped_from_the_page_of_a_run(headgate_process, mock, rows, out):
    parser = pytest.importorskip("prometheus_client.parser")
    server = mock(latency=0.5)  # with one worker it takes 15 seconds
    process = headgate_process("run", rows, "-o", out, *to(server), "--web", "--quiet", "--workers", "1")
    link, token = process.stderr.readline().removeprefix("The page: ").split("?token=")
    request = urllib.request.Request(f"{link}metrics", headers={"Authorization": f"Bearer {token.strip()}"})
    told, until = {}, time.monotonic() + 30
    while not told.get("headgate_calls"):
        assert time.monotonic() < until, told
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
        told = {family.name: family.samples for family in parser.text_string_to_metric_families(text)}
        time.sleep(0.2)
    assert set(told) == {info.name for info in METRICS}
    assert "ok" in {sample.labels["outcome"] for sample in told["headgate_calls"]}
    counted = sum(one.value for one in told["headgate_calls"] if one.name == "headgate_calls_total")
    assert counted == sum(one.value for one in told["headgate_call_duration_seconds"] if one.name.endswith("_count"))
    assert KEY not in text
