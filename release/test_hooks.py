"""The pre-commit hooks are local, and pass on all files."""

from __future__ import annotations

import subprocess

import yaml

from .conftest import PROJECT, run, tool

CONFIG = PROJECT / ".pre-commit-config.yaml"


def test_every_hook_is_local():
    assert {each["repo"] for each in yaml.safe_load(CONFIG.read_text())["repos"]} == {"local"}


def test_the_hooks_pass():
    run(tool("pre-commit"), "validate-config", CONFIG, cwd=PROJECT)
    before = subprocess.run(["git", "status", "--short"], cwd=PROJECT, capture_output=True, text=True).stdout
    run(tool("pre-commit"), "run", "--all-files", cwd=PROJECT)
    assert subprocess.run(["git", "status", "--short"], cwd=PROJECT, capture_output=True, text=True).stdout == before
