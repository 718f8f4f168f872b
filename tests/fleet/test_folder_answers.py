"""Answers in a folder: whole files, found by block in this job and by key in later ones."""

from __future__ import annotations

import os

import pytest

from headgate.distributed.store import StoreDown
from headgate.errors import ConfigError
from headgate.fleet import folder_answers
from headgate.fleet.answers import Taken
from headgate.fleet.folder_answers import FolderAnswers, keys_in, pack_file, unpack_file


def key(number):
    return number.to_bytes(16, "big")


KEYS = [key(number) for number in range(6)]


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "memory")


def opened(folder, job="one", run="r"):
    answers = FolderAnswers(folder, run, job)
    answers.open("target")
    return answers


def test_a_file_has_its_answers_and_a_damaged_one_has_what_is_whole():
    some = [(key(1), b"abc"), (key(2), b""), (key(3), b"x" * 1000)]
    packed = pack_file(some)
    assert list(unpack_file(packed)) == some
    assert keys_in(packed) == [key(1), key(2), key(3)]
    assert list(unpack_file(packed[:-1])) == some[:2]
    for length in (0, 3, 10):
        assert list(unpack_file(packed[:length])) == []


def test_a_block_finds_its_answers_in_another_worker_of_the_job(folder):
    first = opened(folder)
    assert first.take(KEYS) == [Taken.MINE] * 6
    first.put([(KEYS[0], b"a"), (KEYS[3], b"b")])
    assert opened(folder).take(KEYS) == [b"a", Taken.MINE, Taken.MINE, b"b", Taken.MINE, Taken.MINE]


def test_a_later_job_finds_them_whatever_its_blocks_are(folder):
    first = opened(folder)
    first.take(KEYS)
    first.put([(one, b"%d" % place) for place, one in enumerate(KEYS)])
    later = opened(folder, job="two")
    assert later.take(KEYS[4:]) == [b"4", b"5"]
    assert later.take([KEYS[1], key(99)]) == [b"1", Taken.MINE]


def test_a_group_finds_its_answers_in_whatever_order_its_rows_come(folder, monkeypatch):
    monkeypatch.setattr(folder_answers, "MOST_GROUPS_READ", 1)
    first = opened(folder)
    first.take(KEYS[:3], "partition-1")
    first.put([(one, one) for one in KEYS[:3]])
    first.take(KEYS[5:], "partition-2")
    later = opened(folder)
    assert later.take([KEYS[2], KEYS[4]], "partition-1") == [KEYS[2], Taken.MINE]
    assert later.take([KEYS[0], KEYS[1]], "partition-1") == KEYS[:2]
    assert later.take([KEYS[0]], "partition-2") == [Taken.MINE]


def test_few_files_are_kept_in_memory(folder, monkeypatch):
    monkeypatch.setattr(folder_answers, "MOST_FILES_READ", 1)
    first = opened(folder)
    for one in KEYS:
        first.take([one])
        first.put([(one, one)])
    assert opened(folder, job="two").take(KEYS) == KEYS


def test_more_answers_than_can_be_looked_through_are_refused(folder, monkeypatch):
    monkeypatch.setattr(folder_answers, "MOST_INDEXED", 2)
    first = opened(folder)
    first.take(KEYS)
    first.put([(one, b"a") for one in KEYS])
    with pytest.raises(ConfigError, match="too many to look"):
        opened(folder, job="two").take(KEYS)


def test_a_released_row_and_one_of_no_block_may_be_put_all_the_same(folder):
    answers = opened(folder)
    answers.take(KEYS[:1])
    answers.release(KEYS[:1])
    answers.put([(KEYS[0], b"a")])
    assert opened(folder, job="two").take(KEYS[:1]) == [b"a"]


def test_half_a_file_is_never_seen(folder, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    answers = opened(folder)
    answers.take(KEYS)
    with monkeypatch.context() as patch, pytest.raises(StoreDown, match="No space left"):
        patch.setattr(os, "replace", fail)
        answers.put([(KEYS[0], b"a")])
    assert opened(folder).take(KEYS) == [Taken.MINE] * 6
    answers.put([(KEYS[0], b"a")])  # as the buffer does
    assert opened(folder).take(KEYS)[0] == b"a"


def test_another_target_or_a_damaged_folder_is_refused(folder):
    opened(folder).close()
    with pytest.raises(ConfigError, match="started with another target"):
        FolderAnswers(folder, "r", "j").open("elsewhere")
    with open(os.path.join(folder, "r", "run.json"), "w") as file:
        file.write("{")
    with pytest.raises(ConfigError, match="damaged"):
        opened(folder).renew()


def test_a_url_of_an_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match=r"fsspec|cannot be opened"):
        FolderAnswers("nosuch://bucket/prefix", "r", "j")
