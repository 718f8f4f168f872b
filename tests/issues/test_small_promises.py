"""Small promises: short pages keep their lists, advice helps, state is its owner's."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from headgate.cli import execute
from headgate.crawl.fetch.ssrf_guard import is_for_private
from headgate.crawl.page.extract import extract


@pytest.mark.parametrize("items", [2, 4, 12])
def test_a_short_page_keeps_all_items_of_its_list(items: int) -> None:
    names = [f"Name {number}" for number in range(items)]
    listed = "".join(f"<li>{name}</li>" for name in names)
    sentence = "Who we are and what we do all day long, in a sentence that is long enough to count as text."
    page = f"<html><body><h1>Team</h1><p>{sentence}</p><ul>{listed}</ul></body></html>"
    text = extract(page.encode(), "text/html", "utf-8", "http://site.example/").text
    assert [name for name in names if name in text.split("\n")] == names


@pytest.mark.parametrize(
    ("host", "helps"),
    [("127.0.0.1", True), ("localhost", True), ("10.1.2.3", True), ("169.254.169.254", False), ("224.0.0.1", False)],
)
def test_allow_private_is_advised_only_where_it_helps(host: str, helps: bool) -> None:
    assert is_for_private(host) is helps


@pytest.mark.parametrize(("host", "helps"), [("127.0.0.1", True), ("169.254.169.254", False)])
def test_a_crawl_that_may_not_go_there_says_what_helps(
    host: str, helps: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["crawl", f"http://{host}:9/", "-o", str(tmp_path / "pages.jsonl")]) == 3
    assert ("--allow-private" in capsys.readouterr().out) is helps


def test_the_state_folder_is_its_owners_when_a_crawl_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "deep" / "state"
    monkeypatch.setenv("HEADGATE_STATE", str(state))
    execute(["crawl", "http://127.0.0.1:9/", "-o", str(tmp_path / "pages.jsonl")])
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(folder.stat().st_mode) == 0o700 for folder in state.rglob("*") if folder.is_dir())
