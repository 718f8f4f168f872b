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


def test_every_package_is_in_its_tree():
    tree = PAGE.partition("## The tree")[2].partition("## Five walks")[0]
    for package in SOURCE.iterdir():
        if (package / "__init__.py").is_file() and package.name not in {"stores", "sim"}:
            assert f"{package.name}/" in tree, f"{package.name}/ is missing in the tree"
