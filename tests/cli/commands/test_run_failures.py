"""``headgate run`` and what people do to it: names used twice, lines put right, files that are cut off or empty."""

import gzip
import io
import json
import random
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
from rich.console import Console

from headgate.batch.lanes import LaneStanding
from headgate.cli.commands.run_display import RunProgress


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("MOCK_KEY", "any-key")


@pytest.fixture
def to(mock_api):
    """Where rows go: a server that takes them all."""
    return ("--to", mock_api(providers=("openai",)).base_url("openai"), "--keys", "env:MOCK_KEY")


@pytest.fixture
def files(tmp_path):
    return SimpleNamespace(rows=tmp_path / "rows.jsonl", out=tmp_path / "out.jsonl", folder=tmp_path)


def line(name, **body):
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}], **body}
    return json.dumps({"custom_id": name, "url": "/v1/chat/completions", "body": body}) + "\n"


def names(path):
    return Counter(json.loads(text)["custom_id"] for text in path.read_text().splitlines())


def last(said):
    return said.out.splitlines()[-1]


class TestNamesUsedTwice:
    TWINS = line("a") + line("b") + "\n" + line("a", max_tokens=6) + line("c")

    def test_stop_the_run_and_both_lines_are_named(self, headgate, files, to):
        files.rows.write_text(self.TWINS)
        said = headgate("run", files.rows, "-o", files.out, *to)
        assert said.code == 4
        assert "line 4: custom_id 'a' is already used by line 1; each row needs its own. Correct that line" in last(
            said
        )
        files.rows.write_text(self.TWINS.replace('"a"', '"d"', 1))
        assert headgate("run", files.rows, "-o", files.out, *to).code == 2, "a row that was read has changed"

    def test_or_the_second_is_dead(self, headgate, files, to):
        files.rows.write_text(self.TWINS)
        assert headgate("run", files.rows, "-o", files.out, *to, "--on-broken", "dead").code == 3
        assert names(files.out) == Counter(["a", "b", "c", "broken-line-4"])
        assert headgate("verify", files.out).code == 0

    def test_a_plan_finds_them(self, headgate, files, to):
        files.rows.write_text(self.TWINS)
        said = headgate("run", files.rows, "-o", files.out, *to, "--plan")
        assert "broken  1 row: line 4: custom_id 'a' is already used by line 1" in said.out
        assert last(said).startswith("Nothing was sent. Correct the broken lines")
        said = headgate("run", files.rows, "-o", files.out, *to, "--plan", "--on-broken", "dead")
        assert last(said) == "Nothing was sent. Run the same command without --plan to start."


def test_dead_rows_are_put_right_and_sent(headgate, files, to, monkeypatch):
    command = ["run", str(files.rows), "-o", str(files.out), *to, "--on-broken", "dead"]
    monkeypatch.setattr(sys, "argv", ["headgate", *command])
    files.rows.write_text(line("a") + '{"custom_id": "b", "body":\n' + line("c"))
    assert headgate(*command).code == 3
    files.rows.write_text(line("a") + line("b") + line("c"))
    said = headgate(*command)
    assert said.code == 2
    assert "row 2 of the input ('b') has failed, and its line was changed since" in said.err
    said = headgate("retry", files.out)
    assert said.out.splitlines()[0].startswith("Reopened 1 failed row (1 invalid) of ")
    assert said.out.splitlines()[1].startswith("You may correct their lines in the input first")
    assert last(said) == f"Now run: headgate {' '.join(command)}"
    assert headgate(*command).code == 0
    assert names(files.out) == Counter("abc")
    assert headgate("verify", files.out).code == 0


class TestInputsThatAreCutOff:
    @pytest.fixture
    def packed(self):
        # little in it repeats, so that half of the file is about half of the rows
        draw = random.Random(1)
        return gzip.compress("".join(line(f"r{n}", seed=draw.getrandbits(50)) for n in range(300)).encode())

    def test_the_rows_before_the_damage_are_done(self, headgate, files, to, packed):
        source = files.folder / "rows.jsonl.gz"
        source.write_bytes(packed[: len(packed) // 2])
        run = ("run", source, "-o", files.out, *to)
        said = headgate(*run)
        assert said.code == 4
        assert "is damaged or truncated after line " in last(said)
        assert last(said).endswith("Repair the file first. Re-run to resume.")
        assert " open" not in said.out
        done = sum(names(files.out).values())
        assert 60 < done < 260
        assert "; 0 calls" in headgate(*run).out
        source.write_bytes(packed)
        assert headgate(*run).code == 0
        assert names(files.out) == Counter(f"r{n}" for n in range(300))

    def test_in_a_pipe_too(self, headgate, files, to, packed, monkeypatch):
        stdin = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(packed[: len(packed) // 2])))
        monkeypatch.setattr(sys, "stdin", stdin)
        said = headgate("run", "-", "-o", files.out, *to)
        assert said.code == 4
        assert "standard input is damaged or truncated after line " in last(said)
        assert " open" not in said.out

    def test_before_the_first_line(self, headgate, files, to, packed):
        (files.folder / "rows.gz").write_bytes(packed[:15])
        said = headgate("run", files.folder / "rows.gz", "-o", files.out, *to)
        assert said.code == 2
        assert "is damaged or truncated before its first line" in said.err


def test_an_empty_input_is_called_empty(headgate, files, to):
    files.rows.write_text("\n\n")
    said = headgate("run", files.rows, "-o", files.out, *to)
    assert said.code == 0
    assert last(said) == f"Nothing to do: {files.rows} has no rows."


def test_a_folder_as_output_leaves_nothing_behind(headgate, files, to):
    files.rows.write_text(line("a"))
    files.out.mkdir()
    said = headgate("run", files.rows, "-o", files.out, *to)
    assert said.code == 2
    assert "(it is a folder)" in said.err
    assert not list(files.folder.glob("*.ledger"))


def test_the_proof_reads_the_input_as_the_run_did(headgate, files, to):
    source = files.folder / "people.txt"
    source.write_text('name;note\nAda;"one\ntwo"\nBo;"x;y"\n')
    (files.folder / "ask.json").write_text(
        '{"model": "m", "messages": [{"role": "user", "content": "{name}: {note}"}]}'
    )
    done = headgate("run", source, "-o", files.out, *to, "--template", files.folder / "ask.json")
    assert done.code == 0, done.err
    said = headgate("verify", files.out)
    assert said.code == 0
    assert said.out.startswith("2 rows of input: 2 done")


def test_json_over_several_lines_is_told_how_to_become_lines(headgate, files, to):
    files.rows.write_text("[\n" + line("a") + "]\n")
    said = headgate("run", files.rows, "-o", files.out, *to)
    assert said.code == 2
    assert "jq -c '.[]'" in said.err


def test_who_brings_no_key_is_asked_for_one(headgate, files, to):
    files.rows.write_text(line("a"))
    said = headgate("run", files.rows, "-o", files.out, *to[:2])
    assert said.code == 4
    assert last(said).startswith("A key is required (row 1: auth: ")
    assert "times)" not in said.out


def test_a_mistyped_address_can_be_put_right(headgate, files, to):
    """Nobody answers there, so nothing is done, and nothing could be mixed."""
    files.rows.write_text(line("a") + line("b"))
    run = ("run", files.rows, "-o", files.out, "--keys", "env:MOCK_KEY", "--deadline", "300ms", "--to")
    assert headgate(*run, "http://127.0.0.1:9/v1").code == 4
    assert headgate(*run, to[1], "--deadline", "1h").code == 0
    assert names(files.out) == Counter("ab")
    said = headgate(*run, "http://127.0.0.1:9/v1")
    assert said.code == 2
    assert (
        "Results of both would be mixed. Repeat the earlier command, or choose another ledger and output." in said.err
    )


def test_pages_that_are_not_there_can_be_asked_for_elsewhere(headgate, files, to):
    files.rows.write_text(line("a") + line("b"))
    run = ("run", files.rows, "-o", files.out, "--keys", "env:MOCK_KEY", "--to")
    assert headgate(*run, to[1].replace("/v1", "/v2")).code == 3
    said = headgate(*run, to[1])
    assert said.code == 2
    assert "or run headgate retry and then this command: no row is done yet." in said.err
    assert headgate("retry", files.out).code == 0
    assert headgate(*run, to[1]).code == 0
    assert names(files.out) == Counter("ab")
    assert headgate("verify", files.out).code == 0


def test_ledger_and_output_cannot_be_one_file(headgate, files, to):
    files.rows.write_text(line("a"))
    said = headgate("run", files.rows, "-o", files.out, "--ledger", files.out, *to)
    assert said.code == 2
    assert "--ledger and --output are the same file" in said.err
    assert not files.out.exists()


def test_a_models_name_is_shown_as_it_is():
    """Names come from the input; as markup, some would be an error and others colours."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100, color_system=None)
    lane = LaneStanding(
        key="host/m[/red]", credential=None, rate=None, in_flight=0, waiting=0, opens_in=0.0, reason="[bold]"
    )
    progress = RunProgress(
        done=1, dead=0, rows=2, rate=0.0, tokens=0, cost=0.0, lanes=[lane], trouble="", stopping=False, in_flight=0
    )
    console.print(progress.render(console.width, 20))
    assert "host/m[/red]" in shown.getvalue()
    assert "[bold]" in shown.getvalue()


def test_a_ledger_of_its_own_name_is_named_in_what_to_do_next(headgate, files, to, monkeypatch):
    monkeypatch.chdir(files.folder)
    files.rows.write_text(line("a") + "{broken\n")
    run = ("run", "rows.jsonl", "-o", "out.jsonl", "--ledger", "my book.ledger", *to, "--on-broken", "dead")
    said = headgate(*run)
    assert "Retry them with: headgate retry 'my book.ledger'" in last(said)
    files.rows.write_text(line("a") + line("b"))
    assert headgate("retry", "my book.ledger").code == 0
    assert last(headgate(*run)) == "All rows are done. Check with: headgate verify 'my book.ledger'"
    said = headgate("verify", "my book.ledger")
    assert said.code == 0
    assert "2 lines of output compared with the ledger." in said.out


def test_answers_that_went_to_standard_output_are_not_looked_for(headgate, files, to):
    files.rows.write_text(line("a"))
    said = headgate("run", files.rows, "-o", "-", "--ledger", files.folder / "it.ledger", *to)
    assert json.loads(said.out)["custom_id"] == "a"
    assert said.err.splitlines()[-1].endswith("it.ledger")
    assert headgate("verify", files.folder / "it.ledger").code == 0


def test_a_folder_may_be_moved_between_two_runs(headgate, files, to):
    before, after = files.folder / "before", files.folder / "after"
    before.mkdir()
    (before / "rows.jsonl").write_text(line("a") + line("b"))
    assert headgate("run", before / "rows.jsonl", "-o", before / "out.jsonl", *to).code == 0
    before.rename(after)
    said = headgate("run", after / "rows.jsonl", "-o", after / "out.jsonl", *to)
    assert (said.code, said.err) == (0, "")
    assert "; 0 calls" in said.out
    assert headgate("verify", after / "out.jsonl").out.startswith("2 rows of input: 2 done")


@pytest.mark.no_cover
def test_rows_that_all_fail_alike_stop_the_run_before_the_rest_does(headgate, to, files):
    files.rows.write_text("".join(line(f"r{number}", model="") for number in range(1000)))
    said = headgate("run", files.rows, "-o", files.out, "--workers", "4", *to)
    assert said.code == 4
    last = said.out.splitlines()[-1]
    for words in ("rows have all failed with the same error", "headgate retry", "--keep-going"):
        assert words in last
    assert files.out.read_text().count("\n") < 1000
    assert headgate("retry", files.out).code == 0
    assert headgate("run", files.rows, "-o", files.out, "--keep-going", *to).code == 3
    assert files.out.read_text().count("\n") == 1000


def test_a_run_that_is_stopped_does_not_blame_failed_rows(headgate, to, files):
    files.rows.write_text(line("bad", model=""))
    assert headgate("run", files.rows, "-o", files.out, *to).code == 3
    files.rows.write_text(line("bad", model="") + "".join(line(f"r{number}") for number in range(200)))
    said = headgate("run", files.rows, "-o", files.out, *to, "--limits", "requests=4/s", "--deadline", "200ms")
    assert said.code == 4
    assert last(said).startswith("Stopped at the deadline, after ")
    assert last(said).endswith(" ms. Re-run to resume.")
    assert "  1 invalid: 400 " in said.out
