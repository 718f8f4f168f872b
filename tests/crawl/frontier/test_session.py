"""What can be wrong with a crawl's files is told in a sentence, and what was done stays done."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headgate.batch.ledger import LedgerError
from headgate.crawl.frontier import FoundUrl
from headgate.crawl.frontier.frontier import Frontier, read_counts
from headgate.crawl.output import JsonlOutput, Page, Result, WarcOutput
from headgate.errors import OutputError

SEEDS = {"seeds": "https://a.example/", "depth": "3"}


def frontier_at(folder, identity=SEEDS, outputs=None):
    outputs = [JsonlOutput(folder / "pages.jsonl")] if outputs is None else outputs
    return Frontier(folder / "pages.jsonl.headgate", identity=identity, outputs=outputs, per_host=100)


def result(visit, text="text"):
    return Result(Page(url=visit.url, final_url=visit.url, status=200, fetched_at=0.0, depth=visit.depth, text=text))


def crawl(folder, pages=1, waiting=0):
    """A crawl that has written so many pages, and has so many to go."""

    async def main():
        async with frontier_at(folder) as frontier:
            await frontier.add(FoundUrl(f"https://a.example/{n}", 1) for n in range(pages + waiting))
            for visit in await frontier.take(pages):
                await frontier.finish(visit, result(visit))

    asyncio.run(main())


def said_on_begin(folder, kind=LedgerError, **options):
    async def main():
        async with frontier_at(folder, **options):
            pass

    with pytest.raises(kind) as caught:
        asyncio.run(main())
    return str(caught.value)


def urls_in(path):
    return [json.loads(line)["url"] for line in path.read_text().splitlines()]


class TestIdentity:
    def test_another_crawl_is_not_mixed_with_the_pages_of_this(self, tmp_path):
        crawl(tmp_path)
        said = said_on_begin(tmp_path, identity={"seeds": "https://b.example/?token=hush", "depth": "3"})
        assert said == (
            f"{tmp_path}/pages.jsonl.headgate belongs to another crawl, with 1 page written: seeds was "
            "'https://a.example/' and is now 'https://b.example/?token=***'. Their pages would be mixed. "
            "Use the original options, or choose another output"
        )
        assert len(urls_in(tmp_path / "pages.jsonl")) == 1

    def test_before_the_first_page_it_may_be_put_right(self, tmp_path):
        crawl(tmp_path, pages=0, waiting=3)

        async def main():
            async with frontier_at(tmp_path, identity={"seeds": "https://b.example/"}) as frontier:
                assert (await frontier.counts()).known == 0
                assert await frontier.add([FoundUrl("https://b.example/", 0)]) == 1

        asyncio.run(main())

    def test_another_set_of_outputs_is_another_crawl(self, tmp_path):
        crawl(tmp_path)
        both = [JsonlOutput(tmp_path / "pages.jsonl"), WarcOutput(tmp_path / "pages.warc.gz")]
        said = said_on_begin(tmp_path, outputs=both)
        assert "output was 'pages.jsonl' and is now 'pages.jsonl, pages.warc.gz'" in said
        assert not (tmp_path / "pages.warc.gz").exists()

    def test_a_folder_may_be_moved(self, tmp_path):
        (tmp_path / "old").mkdir()
        crawl(tmp_path / "old", waiting=2)
        (tmp_path / "old").rename(tmp_path / "new")

        async def main():
            async with frontier_at(tmp_path / "new") as frontier:
                assert len(await frontier.take(10)) == 2

        asyncio.run(main())


class TestOneProcess:
    def test_a_second_is_refused_by_its_name(self, tmp_path):
        async def main():
            async with frontier_at(tmp_path) as frontier:
                await frontier.add([FoundUrl("https://a.example/", 0)])
                with pytest.raises(LedgerError) as caught:
                    await frontier_at(tmp_path).begin()
                assert f"process {os.getpid()} on " in str(caught.value)
                assert "is already crawling into" in str(caught.value)
                assert "stop it with Ctrl-C, or choose another output" in str(caught.value)
                assert len(await frontier.take(1)) == 1

        asyncio.run(main())
        assert sorted(os.listdir(tmp_path)) == ["pages.jsonl", "pages.jsonl.headgate"]

    HOLD = """
import asyncio, sys
from headgate.crawl.frontier.frontier import Frontier
from headgate.crawl.frontier import FoundUrl
async def main():
    frontier = Frontier(sys.argv[1], identity={"seeds": "https://a.example/", "depth": "3"}, outputs=())
    await frontier.begin()
    await frontier.add([FoundUrl("https://a.example/", 0)])
    await frontier.take(1)
    print("taken", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""

    @pytest.mark.skipif(os.name == "nt", reason="kills processes as POSIX does")
    def test_one_that_was_killed_is_in_nobodys_way(self, tmp_path):
        path = tmp_path / "pages.jsonl.headgate"
        process = subprocess.Popen([sys.executable, "-c", self.HOLD, path], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"taken\n"
        assert f"process {process.pid} on " in said_on_begin(tmp_path, outputs=[])
        process.kill()
        process.communicate()

        async def main():
            async with frontier_at(tmp_path, outputs=[]) as frontier:
                assert len(await frontier.take(5)) == 1

        asyncio.run(main())
        assert os.listdir(tmp_path) == ["pages.jsonl.headgate"]


class TestOutputs:
    def test_a_foreign_file_is_left_alone(self, tmp_path):
        (tmp_path / "pages.jsonl").write_text("precious\n")
        for _ in range(2):
            said = said_on_begin(tmp_path, OutputError)
            assert "exists and was not written by this run; choose another name or remove it" in said
        assert (tmp_path / "pages.jsonl").read_text() == "precious\n"

    def test_an_output_that_is_gone_is_told(self, tmp_path):
        crawl(tmp_path)
        (tmp_path / "pages.jsonl").unlink()
        said = said_on_begin(tmp_path)
        assert said.startswith(f"{tmp_path}/pages.jsonl is gone, but ")
        assert f"or delete {tmp_path}/pages.jsonl.headgate" in said
        assert not (tmp_path / "pages.jsonl").exists()

    def test_an_output_that_was_shortened_is_told(self, tmp_path):
        crawl(tmp_path)
        os.truncate(tmp_path / "pages.jsonl", 10)
        assert f"{tmp_path}/pages.jsonl has 10 bytes, but " in said_on_begin(tmp_path)

    def test_what_a_crash_left_behind_the_last_page_is_cut_off(self, tmp_path):
        crawl(tmp_path, pages=2, waiting=1)
        with sqlite3.connect(tmp_path / "pages.jsonl.headgate") as file:  # a process that has not left
            file.execute("INSERT INTO processes (pid, computer, began_at) VALUES (1, 'here', 0)")
        file.close()
        with (tmp_path / "pages.jsonl").open("ab") as file:
            file.write(b'{"url": "half a li')

        async def main():
            async with frontier_at(tmp_path) as frontier:
                (visit,) = await frontier.take(1)
                await frontier.finish(visit, result(visit))

        asyncio.run(main())
        assert urls_in(tmp_path / "pages.jsonl") == [f"https://a.example/{n}" for n in range(3)]

    @pytest.mark.parametrize("pages", [0, 2])
    def test_what_was_appended_after_a_crawl_has_left_is_kept(self, tmp_path, pages):
        """It cannot be a crawl's own."""
        crawl(tmp_path, pages=pages, waiting=1)
        output = tmp_path / "pages.jsonl"
        whole = output.read_bytes()
        output.write_bytes(whole + b'{"mine": 1}\n')
        said_on_begin(tmp_path, kind=OutputError)
        assert output.read_bytes() == whole + b'{"mine": 1}\n'
        output.write_bytes(whole)
        crawl(tmp_path, pages=pages)
        assert output.read_bytes().startswith(whole)

    def test_what_is_left_of_a_commit_that_failed_is_cut_off(self, tmp_path):
        def stop(step):
            if step == "write" and frontier_fails:
                raise sqlite3.OperationalError("as if the disk were full")

        async def main(count):
            path = tmp_path / "pages.jsonl"
            async with Frontier(
                f"{path}.headgate", identity=SEEDS, outputs=[JsonlOutput(path)], per_host=100, on_step=stop
            ) as frontier:
                await frontier.add(FoundUrl(f"https://a.example/{n}", 1) for n in range(3))
                for visit in await frontier.take(count):
                    await frontier.finish(visit, result(visit))

        frontier_fails = False
        asyncio.run(main(1))
        frontier_fails = True
        with pytest.raises(LedgerError):
            asyncio.run(main(1))
        assert len(urls_in(tmp_path / "pages.jsonl")) == 2, "one of them is not known to be done"
        frontier_fails = False
        asyncio.run(main(2))
        assert sorted(urls_in(tmp_path / "pages.jsonl")) == [f"https://a.example/{n}" for n in range(3)]

    def test_standard_output_takes_lines_too(self, tmp_path, capfd):
        async def main():
            async with frontier_at(tmp_path, outputs=[JsonlOutput("-")]) as frontier:
                await frontier.add([FoundUrl("https://a.example/", 0)])
                (visit,) = await frontier.take(1)
                await frontier.finish(visit, result(visit))

        asyncio.run(main())
        assert json.loads(capfd.readouterr().out)["url"] == "https://a.example/"

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
    def test_a_disk_without_room_for_pages_is_told_and_nothing_is_done(self, tmp_path):
        async def main():
            async with frontier_at(tmp_path, outputs=[JsonlOutput("/dev/full")]) as frontier:
                await frontier.add([FoundUrl("https://a.example/", 0)])
                (visit,) = await frontier.take(1)
                with pytest.raises(OutputError) as caught:
                    await frontier.finish(visit, result(visit), [FoundUrl("https://a.example/2", 1)])
                assert str(caught.value) == (
                    "cannot write /dev/full (the disk is full). It has every page that was finished"
                )
                counts = await frontier.counts()
                assert (counts.done, counts.taken, counts.known) == (0, 1, 1)
                await frontier.put_off(visit, 0.0, "the disk is full")

        asyncio.run(main())

    def test_when_there_is_room_again_it_goes_on(self, tmp_path, monkeypatch):
        async def main():
            async with frontier_at(tmp_path) as frontier:
                await frontier.add(FoundUrl(f"https://a.example/{n}", 1) for n in range(3))
                one, two, three = await frontier.take(3)
                await frontier.finish(one, result(one))
                whole = os.fsync

                def full(descriptor):
                    raise OSError(28, "No space left on device")

                monkeypatch.setattr(os, "fsync", full)
                with pytest.raises(OutputError, match="the disk is full"):
                    await frontier.finish(two, result(two))
                monkeypatch.setattr(os, "fsync", whole)
                await asyncio.gather(frontier.finish(two, result(two)), frontier.finish(three, result(three)))

        asyncio.run(main())
        assert sorted(urls_in(tmp_path / "pages.jsonl")) == [f"https://a.example/{n}" for n in range(3)]


class TestTheFile:
    def test_a_file_that_holds_something_else(self, tmp_path):
        (tmp_path / "pages.jsonl.headgate").write_text("these are notes, not a crawl\n" * 100)
        assert "choose another file" in said_on_begin(tmp_path)

    def test_a_database_of_another_program(self, tmp_path):
        with sqlite3.connect(tmp_path / "pages.jsonl.headgate") as connection:
            connection.execute("CREATE TABLE urls (a)")
        connection.close()
        assert "is a database of another program; choose another output" in said_on_begin(tmp_path)

    def test_a_newer_form(self, tmp_path):
        crawl(tmp_path)
        with sqlite3.connect(tmp_path / "pages.jsonl.headgate") as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
        assert "was made by a newer headgate (format 99" in said_on_begin(tmp_path)

    def test_a_folder_that_is_not_there(self, tmp_path):
        assert f"there is no folder {tmp_path / 'no'}" in said_on_begin(tmp_path / "no")

    def test_a_damaged_file(self, tmp_path):
        crawl(tmp_path, waiting=500)
        path = tmp_path / "pages.jsonl.headgate"
        content = bytearray(path.read_bytes())
        content[4096:] = b"\xa5" * (len(content) - 4096)
        path.write_bytes(content)
        assert "is damaged" in said_on_begin(tmp_path)

    @pytest.mark.skipif(os.name == "nt", reason="users as POSIX has them")
    def test_a_folder_that_may_not_be_written_to(self):
        with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as made_before:
            paths = [Path(folder) / "pages.jsonl.headgate" for folder in (empty, made_before)]
            crawl(paths[1].parent)
            paths[1].chmod(0o444)
            for path in paths:
                path.parent.chmod(0o555)
            command = [sys.executable, "-c", BEGIN_AS_ANOTHER_USER, *paths]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
            lines = ran.stdout.splitlines()
            assert len(lines) == 2, ran.stderr
            assert all(str(path) in line and "permissions" in line for path, line in zip(paths, lines, strict=True))

    def test_a_full_disk_refuses_together_and_goes_on_when_there_is_room(self, tmp_path):
        async def main():
            async with frontier_at(tmp_path) as frontier:
                await frontier.add(FoundUrl(f"https://a.example/{n}", 1) for n in range(3))
                one, two, three = await frontier.take(3)
                await frontier.finish(one, result(one))
                connection = frontier._session.connection
                (pages,) = connection.execute("PRAGMA page_count").fetchone()
                connection.execute(f"PRAGMA max_page_count = {pages + 1}")
                many = [FoundUrl(f"https://b.example/{'x' * 500}/{n}", 2) for n in range(100)]
                together = await asyncio.gather(
                    frontier.finish(two, result(two), many),
                    frontier.finish(three, result(three)),
                    return_exceptions=True,
                )
                assert all("the disk is full" in str(error) for error in together)
                assert (await frontier.counts()).done == 1
                connection.execute("PRAGMA max_page_count = 1000000")
                assert await frontier.finish(two, result(two), many) == 100
                await frontier.finish(three, result(three))

        asyncio.run(main())
        assert sorted(urls_in(tmp_path / "pages.jsonl")) == [f"https://a.example/{n}" for n in range(3)]

    def test_onlookers_are_told_that_there_is_none(self, tmp_path):
        with pytest.raises(LedgerError, match="no crawl found at"):
            read_counts(str(tmp_path / "no.headgate"))
        (tmp_path / "empty").touch()
        with pytest.raises(LedgerError, match="is an empty file without a crawl"):
            read_counts(str(tmp_path / "empty"))


BEGIN_AS_ANOTHER_USER = """
import asyncio, os, sys
from headgate.batch.ledger import LedgerError
from headgate.crawl.frontier.frontier import Frontier
if os.getuid() == 0:
    os.setuid(65534)
async def main(path):
    await Frontier(path, identity={}).begin()
for path in sys.argv[1:]:
    try:
        asyncio.run(main(path))
    except LedgerError as error:
        print(error)
"""
