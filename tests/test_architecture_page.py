"""ARCHITECTURE.md names only files, packages and functions that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "headgate"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_every_file_it_names_exists():
    named = set(re.findall(r"(?<![\w/<])((?:[a-z_]+/)*[a-z_]+\.py)(?::(\w+))?", PAGE))
    assert len(named) > 30
    for path, function in sorted(named):
        found = [SOURCE / path] if "/" in path else sorted(SOURCE.rglob(path))
        found = [one for one in (*found, ROOT / path) if one.is_file()]
        assert found, f"{path} does not exist"
        if function:
            assert any(re.search(rf"\b(def|class) {function}\b", one.read_text("utf-8")) for one in found), (
                f"{path} has no {function}"
            )


TREE = PAGE.partition("## The tree")[2].partition("```\n")[2].partition("```")[0]


def test_every_package_is_in_its_tree():
    for package in SOURCE.iterdir():
        if (package / "__init__.py").is_file():
            assert f"{package.name}/" in TREE, f"{package.name}/ is missing in the tree of ARCHITECTURE.md"


def test_its_tree_names_the_modules_of_each_package_and_of_no_other():
    """Checked are words that can be nothing but names: with an underscore, or with a slash behind them."""
    sections = re.split(r"^  (?=[a-z])", TREE.partition("tests/  ")[0], flags=re.MULTILINE)[1:]
    for section in sections:
        package, slash, contents = section.partition("/")
        if not slash or not (SOURCE / package).is_dir():
            continue
        names = re.findall(r"(?<![\w/`])([a-z]+_[a-z_]+|[a-z]+/)(?![\w(.])", re.sub(r"`[^`]*`", "", contents))
        assert names or package in {"controllers", "proxy", "providers"}, f"{package}/ has no names"
        for name in names:
            beside = SOURCE / package / name, SOURCE / name, *(SOURCE / package).glob(f"**/{name}")
            modules = (SOURCE / package).rglob(f"{name}.*")
            assert any(one.is_dir() for one in beside) or any(modules), (
                f"the tree of ARCHITECTURE.md has {name} in {package}/, where it is not"
            )
