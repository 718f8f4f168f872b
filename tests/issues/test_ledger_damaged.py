"""A ledger that is damaged is called that, whatever the damage; the results are rescued from the output."""

import gzip
import json
import os
import random
import shutil
import sqlite3
from collections import Counter

import pytest

from headgate.batch.ledger.schema import open_to_write


@pytest.fixture(autouse=True)
def nothing_unforeseen(monkeypatch):
    """What no code has foreseen is raised instead of told."""
    monkeypatch.setenv("HEADGATE_DEBUG", "1")


@pytest.fixture
def done(batch, server):
    """Twenty rows, one of them dead."""
    server.plan = lambda n: (400, {"error": {"message": "no"}}) if n == 7 else (200, {"usage": {"total_tokens": 3}})
    batch.write(20)
    assert batch.run().code == 3
    batch.log = batch.folder / "out.jsonl.ledger-wal"
    return batch


def names(path):
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return Counter(json.loads(line)["custom_id"] for line in text.splitlines())


ALL = Counter(f"row-{number}" for number in range(20))


def damaged(content):
    """One damage after the other, each of a few bytes, in what the file really uses."""
    draw = random.Random(28)
    used = [at for at in range(0, len(content), 16) if any(content[at : at + 16])]
    yield content[: len(content) // 2]
    yield content[:100]
    yield bytes(100) + content[100:]
    yield b"no database at all\n" * 50
    for _ in range(40):
        at, size = draw.choice(used), draw.choice([1, 4, 16, 64])
        yield content[:at] + draw.randbytes(size) + content[at + size :]


def test_no_damage_is_unforeseen(done, headgate):
    content, output = done.ledger.read_bytes(), done.out.read_bytes()
    for bad in damaged(content):
        for command in ("status", "verify", "retry", "run"):
            for left in done.folder.glob("*.ledger*"):
                left.unlink()
            done.ledger.write_bytes(bad)
            done.out.write_bytes(output)
            said = done.run("-q") if command == "run" else headgate(command, done.out)
            assert said.code in (0, 2, 3, 4)
            if said.code == 2:
                assert done.out.read_bytes() == output


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_the_results_are_rescued(batch, server, headgate, name):
    out, ledger = batch.folder / name, batch.folder / f"{name}.ledger"
    server.plan = lambda n: (400, {"error": {"message": "no"}}) if n == 7 else (200, {"usage": {"total_tokens": 3}})
    batch.write(15)
    assert batch.run(out=out).code == 3
    before = json.loads(headgate("status", out, "--json").out)
    output = out.read_bytes()
    batch.write(20)
    ledger.write_bytes(ledger.read_bytes()[:5000])
    assert batch.run(out=out).code == 2
    assert batch.run("--recover", out=out).code == 2
    assert out.read_bytes() == output
    shutil.move(ledger, batch.folder / "put-aside")
    assert batch.run(out=out).code == 2
    assert not ledger.exists()
    assert batch.run("--recover", out=out).code == 3
    assert len(server.calls) == 20
    assert names(out) == ALL
    assert headgate("verify", out).code == 0
    after = json.loads(headgate("status", out, "--json").out)
    assert (after["done"], after["dead"], after["reasons"]) == (19, 1, before["reasons"])
    assert after["tokens"] == before["tokens"] + 5 * 3
    assert headgate("retry", out).code == 0
    assert batch.run("--recover", out=out).code == 0
    assert (names(out), len(server.calls)) == (ALL, 21)
    assert not list(batch.folder.glob("*.unfinished*"))


def test_a_repeated_custom_id_keeps_the_name_that_its_line_has(batch, headgate):
    batch.write(3)
    batch.rows.write_text(batch.rows.read_text() + '{"custom_id": "row-1", "body": {"model": "m", "n": 9}}\n')
    assert batch.run("--on-broken", "dead").code == 3
    assert headgate("verify", batch.out).code == 0
    batch.ledger.unlink()
    assert batch.run("--on-broken", "dead", "--recover").code == 3
    assert headgate("verify", batch.out).code == 0


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_a_torn_last_line_is_sent_again(batch, server, headgate, name):
    out = batch.folder / name
    batch.write(20)
    assert batch.run(out=out).code == 0
    os.truncate(out, out.stat().st_size - 9)
    (batch.folder / f"{name}.ledger").unlink()
    assert batch.run("--recover", out=out).code == 0
    assert names(out) == ALL
    assert headgate("verify", out).code == 0


@pytest.mark.parametrize("added", [b'{"custom_id": "mine"}\n', b"half of no line of ours", None], ids=repr)
def test_what_answers_no_row_is_not_taken_for_a_result(done, added):
    done.ledger.unlink()
    lines = done.out.read_bytes()
    done.out.write_bytes(lines + (lines.splitlines(keepends=True)[2] if added is None else added))
    before = {path.name: path.read_bytes() for path in done.folder.iterdir()}
    assert done.run("--recover").code == 2
    assert {path.name: path.read_bytes() for path in done.folder.iterdir()} == before


def test_answers_to_another_input_are_not_taken_for_results(done, server):
    done.ledger.unlink()
    done.write(20, first=100)
    assert done.run("--recover").code == 2
    assert len(server.calls) == 20


class TestMovedWithoutItsLog:
    """After a crash most of a ledger is in its write-ahead log, a file of its own."""

    @pytest.fixture
    def moved(self, done):
        """As a crash leaves it, then without the ledger's main file."""
        with sqlite3.connect(done.ledger) as connection:
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("INSERT INTO notes VALUES ('last', 'change')")
            connection.commit()
            log = done.log.read_bytes()
        connection.close()
        done.ledger.unlink()
        done.log.write_bytes(log)
        return done

    @pytest.mark.parametrize("options", [(), ("--recover",)])
    def test_a_run_neither_deletes_nor_takes_over_the_log(self, moved, server, options):
        before = {path.name: path.read_bytes() for path in moved.folder.iterdir()}
        assert moved.run(*options).code == 2
        assert {path.name: path.read_bytes() for path in moved.folder.iterdir()} == before
        moved.log.unlink()
        assert moved.run("--recover").code == 3
        assert len(server.calls) == 20


@pytest.mark.parametrize("empty", ["no bytes", "no rows"])
def test_a_ledger_without_rows_is_no_obstacle(done, server, headgate, empty):
    """Versions before left one behind when they refused to run."""
    done.ledger.unlink()
    if empty == "no bytes":
        done.ledger.touch()
    else:
        open_to_write(str(done.ledger)).close()
    assert done.run().code == 2
    assert done.run("--recover").code == 3
    assert len(server.calls) == 20
    assert headgate("verify", done.out).code == 0
