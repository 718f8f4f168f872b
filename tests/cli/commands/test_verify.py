"""``headgate verify`` proves: input = done + dead + open, none twice, ledger and output agree."""

import json

import pytest
from tests.batch.ledger.partial_batch import Batch

from headgate.batch.ledger.repair import reopen


@pytest.fixture
def batch(tmp_path):
    return Batch(tmp_path)


class TestSound:
    def test_the_proof_holds(self, headgate, batch):
        said = headgate("verify", batch.output)
        assert (said.code, said.err) == (0, "")
        assert said.out.splitlines() == [
            "6 rows of input: 3 done + 1 failed + 2 open.",
            "3 lines of output compared with the ledger.",
            "Verified so far (1 result not in the output yet). Re-run to resume.",
        ]

    def test_one_line_for_programs(self, headgate, batch):
        fields = json.loads(headgate("verify", batch.ledger, "--json").out)
        assert fields == {
            "holds": True,
            "input": 6,
            "seen": 5,
            "done": 3,
            "dead": 1,
            "open": 2,
            "written": 3,
            "output_lines": 3,
            "findings": [],
            "problems": [],
        }
        assert fields["input"] == fields["done"] + fields["dead"] + fields["open"]

    def test_the_input_may_have_gone(self, headgate, batch):
        batch.source.unlink()
        said = headgate("verify", batch.output)
        assert said.code == 0
        assert said.out.startswith("5 rows read so far; the input was not checked: 3 done + 1 failed + 1 open.")

    def test_a_line_of_ours_that_a_crash_has_torn_is_for_the_next_run_to_write_again(self, headgate, batch):
        with batch.output.open("ab") as file:
            file.write(b'{"custom_id": "ro')
        assert headgate("verify", batch.output).code == 0

    def test_a_packed_output(self, headgate, tmp_path):
        batch = Batch(tmp_path, "out.jsonl.gz")
        said = headgate("verify", batch.output)
        assert (said.code, said.out.splitlines()[1]) == (0, "3 lines of output compared with the ledger.")

    def test_an_output_that_went_elsewhere(self, headgate, batch):
        batch.output.unlink()
        assert headgate("verify", batch.ledger, "-o", "-").code == 0

    def test_dead_rows_that_were_given_another_chance(self, headgate, batch):
        assert reopen(batch.ledger, "deadline") == 0
        assert reopen(batch.ledger, "invalid") == 1
        fields = json.loads(headgate("verify", batch.output, "--json").out)
        assert (fields["holds"], fields["done"], fields["dead"], fields["open"], fields["written"]) == (
            True,
            3,
            0,
            3,
            0,
        )


class TestNotSound:
    def said_of(self, headgate, batch, *words):
        said = headgate("verify", batch.output, *words)
        assert said.code == 3
        assert said.out.splitlines()[-1].startswith("Verification failed.")
        return said.out

    def test_a_changed_row_of_the_input(self, headgate, batch):
        batch.source.write_text(batch.source.read_text().replace("row-2", "row-9"))
        assert "row 3 of the input ('row-2') has changed" in self.said_of(headgate, batch)

    def test_an_input_that_has_shrunk(self, headgate, batch):
        batch.source.write_text("".join(batch.source.read_text().splitlines(keepends=True)[:3]))
        assert "the input has 3 rows; 2 more rows of the ledger" in self.said_of(headgate, batch)

    def test_a_changed_line_of_the_output(self, headgate, batch):
        batch.output.write_bytes(batch.output.read_bytes().replace(b"row-1", b"row-7"))
        assert "line 2 of the output differs from row 2 in the ledger" in self.said_of(headgate, batch)

    def test_an_output_that_was_cut_off(self, headgate, batch):
        content = batch.output.read_bytes()
        batch.output.write_bytes(content[: len(content) // 3])
        said = self.said_of(headgate, batch)
        assert f"the output has {len(content) // 3} bytes, but {len(content)} were written to it" in said
        assert "the output lacks 2 lines, the first of row 2" in said

    def test_an_output_that_is_gone(self, headgate, batch):
        batch.output.unlink()
        assert "the output with 3 rows is missing" in self.said_of(headgate, batch)

    @pytest.mark.parametrize(
        ("damage", "finding"),
        [
            ("UPDATE rows SET state = 4 WHERE idx = 4", "finished rows without a result: 1"),
            ("UPDATE rows SET state = 0 WHERE idx = 0", "the totals do not match the rows"),
            (
                "UPDATE rows SET state = 0 WHERE idx = 0",
                "results of rows that are open, unknown or in another final state: 1",
            ),
            (
                "INSERT INTO finals (idx) VALUES (0)",
                "results missing from the order of finished rows, or in it twice: 1",
            ),
            ("UPDATE finals SET number = 9 WHERE number = 4", "numbers missing from the order of finished rows: 5"),
            ("UPDATE output SET number = 7", "rows counted as written to the output but not finished: 3"),
            ("UPDATE rows SET key = 'row-0' WHERE idx = 3", "2 rows have the id 'row-0', such as rows 1 and 4"),
            ("UPDATE rows SET attempts = 5 WHERE idx = 3", "the totals do not match the rows"),
        ],
    )
    def test_a_ledger_that_does_not_agree_with_itself(self, headgate, batch, damage, finding):
        batch.change(damage)
        assert finding in self.said_of(headgate, batch)


class TestUsage:
    def test_files_that_are_not_there(self, headgate, batch):
        assert headgate("verify", batch.output, "--input", "nowhere.jsonl").code == 2
        assert headgate("verify", batch.output, "-o", "nowhere.jsonl").code == 2
        assert headgate("verify", "nowhere.jsonl").code == 2

    def test_what_is_no_ledger(self, headgate, tmp_path):
        (tmp_path / "x.ledger").write_text("not a ledger\n" * 100)
        said = headgate("verify", tmp_path / "x.ledger")
        assert said.code == 3
        assert "is not a ledger; choose another file" in said.err
