"""The manual's links, commands, numbers and words."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from tests.manual.pages import DOCS, PAGES, README, ROOT, blocks, commands, prose

from headgate.cli import group

NAVIGATION = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
MOST_TERMS = 15
STRANGE = re.compile(
    r"\b(whoever|whomever|somebody|anybody|nobody|anew|of late|heeds?|thereof|alike|befalls?|one who|gives leave"
    r"|as it stands|stands in|goes before|told of|hears of)\b",
    re.IGNORECASE,
)
"""Words that an engineer of this field would not write."""


def anchors(text: str) -> set[str]:
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
        found.add(re.sub(r"[\s-]+", "-", plain))
    return found


@pytest.mark.parametrize("name", [*PAGES, "README.md"])
def test_every_link_leads_somewhere(name: str) -> None:
    text = README if name == "README.md" else PAGES[name]
    here = ROOT if name == "README.md" else (DOCS / name).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (here / path).resolve() if path else (ROOT / name if name == "README.md" else DOCS / name)
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), target


def test_the_navigation_and_the_list_for_models_have_every_page() -> None:
    listed = re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "llms.txt").read_text(encoding="utf-8"))
    assert sorted(NAVIGATION) == sorted(PAGES)
    assert sorted(listed) == sorted(set(PAGES) - {"index.md"})


@pytest.mark.parametrize("name", [*PAGES, "README.md"])
def test_every_command_can_be_typed(name: str) -> None:
    context = click.Context(group)
    for typed in commands(README if name == "README.md" else PAGES[name]):
        _, word, *rest = shlex.split(typed.replace("...", ""))
        command = group.get_command(context, word)
        assert command is not None, typed
        known = {option for parameter in command.params for option in parameter.opts}
        options = {part.partition("=")[0] for part in rest if part.startswith("-") and part != "-"}
        assert options <= known | {"--help"}, typed


@pytest.mark.parametrize("name", ["comparison.md"])
def test_every_number_was_measured(name: str) -> None:
    tables = re.findall(r"<!-- from (bench/\w+\.md) -->\n\n((?:\|.*\n)+)", PAGES[name])
    assert len(tables) >= 9
    for source, table in tables:
        measured = (ROOT / source).read_text(encoding="utf-8")
        for row in table.splitlines()[2:]:
            for cell in row.split("|")[2:-1]:
                for number in re.findall(r"(?<![\w/.,])[-+]?\d+(?:,\d{3})*(?:\.\d+)?%?", cell.replace("headgate", "")):
                    assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d])", measured), f"{number} in {row}"


def test_the_glossary_is_short() -> None:
    assert 10 <= len(re.findall(r"^:   ", PAGES["glossary.md"], re.MULTILINE)) <= MOST_TERMS


@pytest.mark.parametrize("name", [*PAGES, "README.md"])
def test_the_words_are_plain(name: str) -> None:
    text = prose(README if name == "README.md" else PAGES[name])
    assert [found[0] for found in STRANGE.finditer(text)] == []


def test_every_picture_is_made_by_a_command() -> None:
    """The pictures of the manual are of real runs: one script makes them, or a benchmark does."""
    scripts = "".join((ROOT / "bench" / name).read_text() for name in ("manual_pictures.py", "end_to_end.py"))
    for path in [*DOCS.glob("*.png"), *DOCS.rglob("*.svg")]:
        known = path.name in scripts or path.stem in scripts or path.name == "demo.svg" or "page-" in path.name
        assert known, path.name


def test_blocks_name_their_language() -> None:
    for name, text in PAGES.items():
        openings = re.findall(r"^```(\w*)", text, re.MULTILINE)[::2]
        assert all(openings), name
        assert not blocks(text, "shell"), f"{name}: console for what is typed, sh for what a test runs"
