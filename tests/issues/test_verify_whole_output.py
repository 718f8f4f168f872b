"""``verify`` compares the whole output; no run cuts off what it has not written; a refused run writes nothing."""

import gzip
import json
import sqlite3
from collections import Counter

import pytest

FOREIGN = b'{"custom_id": "mine", "note": "of my own"}\n'


def problems(headgate, output):
    said = headgate("verify", output, "--json")
    fields = json.loads(said.out)
    assert (said.code == 0) is fields["holds"]
    return [(one["code"], one["line"], one["row"]) for one in fields["problems"]]


def lines_of(path):
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).splitlines(keepends=True)


def names(path):
    return Counter(json.loads(line)["custom_id"] for line in lines_of(path))


@pytest.fixture
def done(batch):
    """Ten rows, all done."""
    batch.write(10)
    assert batch.run().code == 0
    return batch


def append(path, content):
    with path.open("ab") as file:
        file.write(content)


class TestNames:
    def test_a_sound_output(self, done, headgate):
        assert problems(headgate, done.out) == []

    def test_a_line_that_is_there_twice(self, done, headgate):
        append(done.out, done.out.read_bytes().splitlines(keepends=True)[3])
        assert problems(headgate, done.out) == [("double", 11, None)]

    def test_a_foreign_line_at_the_end_and_one_in_the_middle(self, done, headgate):
        lines = done.out.read_bytes().splitlines(keepends=True)
        done.out.write_bytes(b"".join([*lines[:4], FOREIGN, *lines[4:], b"no JSON\n"]))
        assert problems(headgate, done.out) == [("stranger", 5, None), ("stranger", 12, None)]

    def test_half_a_line_at_the_end(self, done, headgate):
        append(done.out, done.out.read_bytes()[:20])
        assert problems(headgate, done.out) == [("stranger", 11, None)]

    def test_a_line_that_is_missing_and_one_that_was_changed(self, done, headgate):
        lines = done.out.read_bytes().splitlines(keepends=True)
        rows = [json.loads(line)["custom_id"].removeprefix("row-") for line in lines]
        lines[1] = lines[1].replace(b"true", b"null")
        done.out.write_bytes(b"".join([*lines[:6], *lines[7:]]))
        found = problems(headgate, done.out)
        assert found[0][0] == "short"
        assert found[1:] == [("changed", 2, int(rows[1]) + 1), ("missing", None, int(rows[6]) + 1)]

    def test_a_whole_output_beside_a_ledger_that_knows_nothing(self, done, headgate):
        other = done.folder / "other.jsonl"
        done.rows.write_text("")
        assert done.run(out=other).code == 0
        other.write_bytes(done.out.read_bytes())
        found = problems(headgate, other)
        assert {code for code, _, _ in found} == {"stranger"}
        fields = json.loads(headgate("status", other, "--json").out)
        assert (fields["output_bytes"], fields["output_file_bytes"]) == (0, done.out.stat().st_size)

    def test_the_output_that_is_named_and_not_the_one_it_is_a_copy_of(self, done, headgate):
        copy = done.out.with_name("copy.jsonl")
        copy.write_bytes(done.out.read_bytes())
        copy.with_name("copy.jsonl.ledger").write_bytes(done.ledger.read_bytes())
        assert problems(headgate, copy) == []
        append(copy, FOREIGN)
        assert problems(headgate, copy) == [("stranger", 11, None)]
        assert problems(headgate, copy.with_name("copy.jsonl.ledger")) == []

    def test_a_packed_output(self, batch, headgate):
        out = batch.folder / "out.jsonl.gz"
        batch.write(10)
        assert batch.run(out=out).code == 0
        assert problems(headgate, out) == []
        append(out, gzip.compress(lines_of(out)[0] + FOREIGN))
        assert problems(headgate, out) == [("double", 11, None), ("stranger", 12, None)]
        append(out, b"no gzip at all")
        assert ("damaged", None, None) in problems(headgate, out)


class TestNothingIsCutOff:
    @pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
    @pytest.mark.parametrize("what", ["double", "foreign", "half"])
    def test_a_run_refuses_an_output_with_lines_that_it_has_not_written(self, batch, headgate, name, what):
        out = batch.folder / name
        batch.write(10)
        assert batch.run(out=out).code == 0
        line = lines_of(out)[0]
        added = {"double": line, "foreign": FOREIGN, "half": line[:20]}[what]
        append(out, gzip.compress(added) if name.endswith("gz") else added)
        batch.write(20)
        before = out.read_bytes()
        assert batch.run(out=out).code == 2
        assert out.read_bytes() == before
        out.rename(batch.folder / "put-aside")
        assert batch.run(out=out).code == 0
        assert names(out) == Counter(f"row-{number}" for number in range(20))
        assert problems(headgate, out) == []

    def test_our_own_line_that_a_crash_has_torn_is_written_again(self, done, headgate):
        """As a crash leaves it that comes between the write and the checkpoint."""
        whole = done.out.read_bytes()
        with sqlite3.connect(done.ledger) as connection:
            ends = whole.find(b"\n", len(whole) // 2) + 1
            count = whole[:ends].count(b"\n")
            connection.execute("UPDATE output SET number = ?, offset = ?", (count, ends))
        connection.close()
        done.out.write_bytes(whole[:-7])
        assert problems(headgate, done.out) == []
        assert done.run().code == 0
        assert done.out.read_bytes() == whole

    @pytest.mark.parametrize("torn", [1, 7, 300])
    @pytest.mark.parametrize("name", ["out.jsonl.gz", "out.jsonl.zst"])
    def test_a_packed_piece_that_a_crash_has_torn_is_written_again(self, batch, headgate, name, torn):
        """Even where all of its lines can be read, and only the check sum behind them is torn."""
        out = batch.folder / name
        batch.write(10)
        assert batch.run(out=out).code == 0
        with sqlite3.connect(f"{out}.ledger") as connection:
            connection.execute("UPDATE output SET number = 0, offset = 0")
        connection.close()
        whole = out.read_bytes()
        out.write_bytes(whole[:-torn])
        assert problems(headgate, out) == []
        assert batch.run(out=out).code == 0
        assert out.read_bytes() == whole

    @pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst"])
    def test_an_output_in_which_nothing_stands_yet(self, batch, headgate, name):
        out = batch.folder / name
        batch.rows.write_text("")
        assert batch.run(out=out).code == 0
        out.touch()
        assert problems(headgate, out) == []

    def test_lines_that_come_during_the_run_stop_it(self, batch, server, headgate):
        def plan(number):
            if number == 5:
                append(batch.out, FOREIGN)
            return 200, {"ok": True}

        batch.write(10)
        server.plan = plan
        assert batch.run().code == 4
        assert FOREIGN in batch.out.read_bytes()
        assert "stranger" in {code for code, _, _ in problems(headgate, batch.out)}

    def test_retry_keeps_what_is_not_its_own(self, batch, server, headgate):
        server.plan = lambda number: (400, {"error": {"message": "no"}}) if number == 3 else (200, {"ok": True})
        batch.write(10)
        assert batch.run().code == 3
        whole = batch.out.read_bytes()
        append(batch.out, FOREIGN)
        assert headgate("retry", batch.out).code == 3
        batch.out.write_bytes(whole)
        assert headgate("retry", batch.out).code == 0
        assert problems(headgate, batch.out) == []
        append(batch.out, FOREIGN)
        assert batch.run().code == 2
        assert batch.out.read_bytes() == whole + FOREIGN
        batch.out.write_bytes(whole)
        assert batch.run().code == 0
        assert names(batch.out) == Counter(f"row-{number}" for number in range(10))
        assert problems(headgate, batch.out) == []


class TestRefused:
    def test_a_run_beside_an_output_without_its_ledger_leaves_no_new_one(self, done, headgate):
        done.ledger.unlink()
        before = {path.name: path.read_bytes() for path in done.folder.iterdir()}
        assert done.run().code == 2
        assert {path.name: path.read_bytes() for path in done.folder.iterdir()} == before
        assert headgate("verify", done.out).code == 2
        assert headgate("status", done.out).code == 2
