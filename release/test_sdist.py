"""The source archive: it has all that is kept under version control, and the wheel comes out of it the same.

Its tests run from the unpacked archive, on every Python that is supported: `make release-check`.
"""

from __future__ import annotations

import subprocess
import tarfile
import zipfile

import pytest

from .conftest import PROJECT, run, tool

LEFT_OUT = (".ci/", ".gitattributes")


def names_of(sdist) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


def test_it_has_what_is_under_version_control(sdist):
    listed = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True)
    if listed.returncode:
        pytest.fail("the release is made from a repository")
    files = {name for name in listed.stdout.splitlines() if not name.startswith(LEFT_OUT)}
    assert sorted(files - names_of(sdist)) == []


def test_it_has_nothing_that_was_made_here(sdist):
    made = {".venv", "dist", "__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coverage", ".release"}
    assert [name for name in names_of(sdist) if made & set(name.split("/")) or name.startswith("site/")] == []


def test_the_wheel_of_the_archive_is_the_wheel(sdist, wheel, clean, tmp_path):
    run(tool("uv"), "build", "--quiet", "--wheel", "--out-dir", tmp_path, sdist, env=clean, cwd=tmp_path)
    (again,) = tmp_path.glob("*.whl")
    first, second = zipfile.ZipFile(wheel), zipfile.ZipFile(again)
    assert first.namelist() == second.namelist()
    assert [name for name in first.namelist() if first.read(name) != second.read(name)] == []
