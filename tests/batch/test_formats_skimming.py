"""Rows in stretches are the rows one by one, and cost less."""

import gzip

import pytest

from headgate.batch.formats import InputError, Rows, Template
from headgate.batch.formats.skimming import MOST_BYTES, Skimming


def facts(row):
    return row.index, row.line, row.raw, row.digest, row.problem


def skimmed(rows, most):
    reading, found, stretches = Skimming(rows), [], 0
    while stretch := reading.take(most):
        assert len(stretch) <= most
        found += [facts(row) for row in stretch]
        stretches += 1
        digests = getattr(stretch, "digests", [row.digest for row in stretch])
        assert list(digests) == [row.digest for row in stretch]
    reading.close()
    return found, stretches


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_they_are_the_same_as_one_by_one(tmp_path, most):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n   \n{"b": 2}\n' + b'{"c": "%b"}\n' % (b"x" * 90) + b'{"d": 4}')
    rows = Rows(str(path), longest=50)
    assert skimmed(rows, most)[0] == [facts(row) for row in Rows(str(path), longest=50)]
    assert skimmed(rows, most)[0] == [facts(row) for row in rows]  # and again
    assert rows.line_of(3) == 6


def test_records_of_a_csv_too(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('text\n"a\nb"\nc\nd\n')
    rows = Rows(str(path), template=Template('{"input": "{text}"}'))
    found, stretches = skimmed(rows, 2)
    assert (found, stretches) == ([facts(row) for row in rows], 2)


def test_a_stretch_of_large_rows_is_short(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": "%b"}\n' % (b"x" * (MOST_BYTES // 2)) * 4)
    assert skimmed(Rows(str(path)), 1000)[1] == 2


def test_what_stands_before_damage_is_given_before_it_is_told(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n' * 1000) + b"no gzip")
    reading = Skimming(Rows(str(path)))
    assert len(reading.take(5000)) == 1000
    for _ in range(2):
        with pytest.raises(InputError, match="damaged or cut off after line 1,000"):
            reading.take(5000)
    reading.close()
