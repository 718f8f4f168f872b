"""How the ledger writes: together, lastingly, and without a word from those who are gone."""

import asyncio
import json
import threading

import pytest

from headgate.batch.ledger import Change, Claim, LedgerError, Row, RowState
from headgate.batch.ledger.queries import MOST_BYTES, read_status
from headgate.batch.ledger.repair import reopen
from headgate.batch.ledger.sqlite import SqliteLedger
from headgate.errors import ConfigError

FULL, NORMAL = 2, 1


def rows(count, first=0):
    return [Row(i, str(i), b"%016d" % i) for i in range(first, first + count)]


def done(claim, line=b"line", state=RowState.DONE, reason=""):
    return Change(index=claim.index, fence=claim.fence, state=state, attempts=1, result=line, reason=reason)


def run(path, scenario, **options):
    async def main():
        ledger = SqliteLedger(path, **options)
        await ledger.begin({"input": "a"})
        try:
            return await scenario(ledger)
        finally:
            await ledger.close()

    return asyncio.run(main())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.ledger"


class TestCommits:
    def test_fifty_results_at_once_are_one_commit(self, path):
        steps = []

        async def scenario(ledger):
            claims = await ledger.claim(rows(50))
            steps.clear()
            await asyncio.gather(*(ledger.record(done(claim)) for claim in claims))
            assert steps == ["commit", "committed"]

        run(path, scenario, on_step=steps.append)

    def test_what_comes_while_one_is_under_way_is_the_next(self, path):
        commits = []
        others_have_come = threading.Event()

        def on_step(step):
            commits.append(step)
            if commits.count("commit") == 1:
                assert others_have_come.wait(60)

        async def scenario(ledger):
            claims = await ledger.claim(rows(40))
            recording = [asyncio.create_task(ledger.record(done(claims[0])))]
            while "commit" not in commits:
                await asyncio.sleep(0.001)
            for claim in claims[1:]:
                recording.append(asyncio.create_task(ledger.record(done(claim))))
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            others_have_come.set()
            assert all(await asyncio.gather(*recording))
            assert commits.count("commit") == 2

        run(path, scenario, on_step=on_step)

    @pytest.mark.parametrize(("durability", "expected"), [("full", FULL), ("normal", NORMAL)])
    def test_results_survive_a_power_cut_unless_that_was_given_up_and_claims_need_not(self, path, durability, expected):
        levels = []

        def look_at(step):
            (level,) = ledgers[0]._writing.execute("PRAGMA synchronous").fetchone()
            levels.append((step, level))

        ledgers = []

        async def scenario(ledger):
            ledgers.append(ledger)
            (claim,) = await ledger.claim(rows(1))
            await ledger.record(done(claim))
            assert ("claim", NORMAL) in levels
            assert ("commit", expected) in levels

        run(path, scenario, durability=durability, on_step=lambda step: look_at(step) if ledgers else None)

    def test_another_durability_is_refused(self, path):
        with pytest.raises(ConfigError, match="durability='some'"):
            SqliteLedger(path, durability="some")

    def test_the_loop_goes_on_while_the_disk_is_slow(self, path):
        """The disk is done when the loop has had its turns."""
        has_gone_on = threading.Event()

        async def scenario(ledger):
            claims = await ledger.claim(rows(1))
            recording = asyncio.create_task(ledger.record(done(claims[0])))
            turns = 0
            while not recording.done():
                await asyncio.sleep(0.001)
                turns += 1
                if turns > 20:
                    has_gone_on.set()
            assert turns > 20

        run(path, scenario, on_step=lambda step: has_gone_on.wait(20) if step == "commit" else None)


class TestCancelling:
    def test_a_claim_whose_asker_has_gone_is_given_back(self, path):
        async def scenario(ledger):
            claiming = asyncio.create_task(ledger.claim(rows(3)))
            await asyncio.sleep(0)
            claiming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claiming
            while await ledger.abandoned(10) != [0, 1, 2]:
                await asyncio.sleep(0.001)
            assert all(isinstance(claim, Claim) for claim in await ledger.claim(rows(3)))

        run(path, scenario)

    def test_a_result_whose_asker_has_gone_is_kept(self, path):
        async def scenario(ledger):
            (claim,) = await ledger.claim(rows(1))
            recording = asyncio.create_task(ledger.record(done(claim)))
            await asyncio.sleep(0)
            recording.cancel()
            assert await asyncio.gather(recording, return_exceptions=True)
            while (await ledger.counts()).states != {RowState.DONE: 1}:
                await asyncio.sleep(0.001)

        run(path, scenario)


class TestIdentity:
    def test_the_same_run_goes_on(self, path):
        async def scenario(ledger):
            (claim,) = await ledger.claim(rows(1))
            await ledger.record(done(claim))

        run(path, scenario)

        async def again(ledger):
            assert (await ledger.counts()).states == {RowState.DONE: 1}

        run(path, again)

    def test_what_has_changed_is_named_as_it_was_and_as_it_is(self, path):
        async def main():
            ledger = SqliteLedger(path)
            await ledger.begin({"input": "rows.jsonl", "target": "https://one.example", "template": "t" * 500})
            (claim,) = await ledger.claim(rows(1))
            await ledger.record(done(claim))
            await ledger.close()
            for attempt in range(2):
                with pytest.raises(LedgerError) as caught:
                    await SqliteLedger(path).begin({"input": "rows.jsonl", "target": "https://two.example"})
                said = str(caught.value)
                assert "the target was 'https://one.example' and is now 'https://two.example'" in said, attempt
                assert "the template was 'ttt" in said
                assert "is now not given" in said
                assert "the input" not in said
                assert len(said) < 800

        asyncio.run(main())
        assert read_status(str(path)).counts.seen == 1

    def test_no_secret_is_shown(self, path):
        async def main():
            ledger = SqliteLedger(path)
            await ledger.begin({"target": "https://me:hunter2@one.example"})
            (claim,) = await ledger.claim(rows(1))
            await ledger.record(done(claim))
            await ledger.close()
            with pytest.raises(LedgerError) as caught:
                await SqliteLedger(path).begin({"target": "https://two.example"})
            assert "hunter2" not in str(caught.value)

        asyncio.run(main())

    @pytest.mark.parametrize("ends", [None, RowState.DEAD])
    def test_where_there_is_no_result_the_target_may_be_put_right(self, path, ends):
        async def main():
            ledger = SqliteLedger(path)
            await ledger.begin({"input": "rows.jsonl", "target": "one"})
            claim, _ = await ledger.claim(rows(2))
            if ends is not None:
                await ledger.record(done(claim, state=ends, reason="invalid: no such page"))
            await ledger.close()
            if ends is not None:
                with pytest.raises(
                    LedgerError, match="or run headgate retry and then this command: no row is done yet"
                ):
                    await SqliteLedger(path).begin({"input": "rows.jsonl", "target": "two"})
                reopen(str(path))
            with pytest.raises(LedgerError, match=r"the input was 'rows\.jsonl' and is now 'others\.jsonl'"):
                await SqliteLedger(path).begin({"input": "others.jsonl", "target": "one"})
            ledger = SqliteLedger(path)
            await ledger.begin({"input": "rows.jsonl", "target": "two"})
            assert all(isinstance(one, Claim) for one in await ledger.claim(rows(2)))
            await ledger.close()

        asyncio.run(main())
        assert read_status(str(path)).identity == {"input": "rows.jsonl", "target": "two"}

    def test_but_not_while_a_process_works_on_it(self, path):
        async def main():
            ledger = SqliteLedger(path)
            await ledger.begin({"target": "one"})
            await ledger.claim(rows(1))
            with pytest.raises(LedgerError, match="belong to another run"):
                await SqliteLedger(path).begin({"target": "two"})
            await ledger.close()

        asyncio.run(main())

    def test_a_ledger_without_rows_belongs_to_no_input_yet(self, path):
        async def main():
            for target in ("one", "two"):
                ledger = SqliteLedger(path)
                await ledger.begin({"target": target})
                await ledger.close()

        asyncio.run(main())
        assert read_status(str(path)).identity == {"target": "two"}


class TestAmounts:
    @pytest.mark.no_cover
    def test_large_lines_are_read_a_few_at_a_time_and_none_is_skipped(self, path):
        large = b"x" * (MOST_BYTES // 2 + 1)

        async def scenario(ledger):
            for claim in await ledger.claim(rows(5)):
                await ledger.record(done(claim, large))
            assert [one.number for one in await ledger.final(0, 100)] == [1, 2]
            assert [one.number for one in await ledger.final(4, 100)] == [5]

        run(path, scenario)

    @pytest.mark.no_cover
    def test_more_rows_than_a_statement_takes(self, path):
        async def scenario(ledger):
            claims = await ledger.claim(rows(3000))
            assert all(await asyncio.gather(*(ledger.record(done(claim)) for claim in claims)))
            assert (await ledger.counts()).states == {RowState.DONE: 3000}
            assert len(await ledger.final(0, 5000)) == 3000

        run(path, scenario)

    def test_the_history_of_a_row_is_kept_with_it(self, path):
        async def scenario(ledger):
            (claim,) = await ledger.claim(rows(1))
            for state, seconds in ((RowState.PARKED, 1.5), (RowState.DONE, 0.5)):
                change = Change(
                    index=0, fence=claim.fence, state=state, attempts=1, tokens=3, cost=0.5, waited={"pace": seconds}
                )
                await ledger.record(change)
            (kept,) = ledger._reading.execute("SELECT json_array(tokens, cost, waited) FROM rows").fetchone()
            assert json.loads(kept) == [6, 1.0, '{"pace": 2.0}']

        run(path, scenario)
