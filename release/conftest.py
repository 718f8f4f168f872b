"""What must hold before a release, apart from the tests: files, shells, Prometheus. `make release-test` runs it.

Packages are downloaded here, so none of it is part of `make test`. Headgate itself comes from the wheel in dist/.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
SLOW = 600


def run(*words: str | Path, **options: object) -> str:
    """Standard output of a command that must succeed."""
    settings = {"capture_output": True, "text": True, "timeout": SLOW} | options
    done = subprocess.run([str(word) for word in words], **settings)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def tool(name: str) -> str:
    """A program that these tests cannot do without; of .venv, or of the machine."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is missing; as root: apt-get install prometheus zsh fish, and make release-test"
    return found


@pytest.fixture(scope="session")
def wheel() -> Path:
    (found,) = (PROJECT / "dist").glob("headgate-*.whl")
    return found


@pytest.fixture(scope="session")
def sdist() -> Path:
    (found,) = (PROJECT / "dist").glob("headgate-*.tar.gz")
    return found


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment without this project: no .venv, no PYTHONPATH, folders of its own."""
    home = tmp_path_factory.mktemp("home")
    mine = str(Path(sys.executable).parent)
    path = os.pathsep.join(one for one in os.environ["PATH"].split(os.pathsep) if one != mine)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL", "HEADGATE"))}
    folders = {"HEADGATE_STATE": home / "state", "XDG_CONFIG_HOME": home / "config", "PIPX_HOME": home / "pipx"}
    return kept | {"PATH": path} | {name: str(folder) for name, folder in folders.items()}


@pytest.fixture(scope="session")
def install(wheel: Path, clean: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``install("redis")`` gives the scripts folder of a new environment with ``headgate[redis]`` of the wheel."""
    made: dict[str, Path] = {}

    def make(extra: str = "", *more: str | Path) -> Path:
        name = f"{extra or 'base'}{len(more)}"
        if name not in made:
            home = tmp_path_factory.mktemp(name)
            run(tool("uv"), "venv", "--quiet", "--python", sys.executable, home / "env", env=clean)
            spec = f"headgate[{extra}] @ {wheel.as_uri()}" if extra else f"headgate @ {wheel.as_uri()}"
            python = home / "env" / "bin" / "python"
            run(tool("uv"), "pip", "install", "--quiet", "--python", python, spec, *more, env=clean)
            made[name] = python.parent
        return made[name]

    return make
