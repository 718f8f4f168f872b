"""The package as others get it: what the wheel holds, that it installs alone, and how little an import loads.

Nothing is downloaded. The fresh environment borrows the dependencies of the one the tests run in; Headgate
itself comes out of the wheel.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import click
import pytest

from headgate import __version__

PROJECT = Path(__file__).parents[1]
SCRIPTS = "Scripts" if os.name == "nt" else "bin"
MOST_MODULES = 160
"""Modules that ``import headgate`` may load; each costs a fraction of a millisecond."""
NOT_FOR_EVERYBODY = {"aiohttp", "click", "http_sf", "httpx2", "multidict", "requests", "rich", "uvloop", "yarl"}
HEAVY = {"asyncio", "concurrent", "ctypes", "email", "http", "multiprocessing", "socket", "sqlite3", "ssl", "urllib"}


def run(*command: str | Path, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling builds the wheel; install the extra 'test'")
    folder = tmp_path_factory.mktemp("dist")
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    run(sys.executable, "-c", build, folder, cwd=PROJECT)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts folder of a new environment with the wheel in it."""
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home, with_pip=False, symlinks=os.name != "nt")
    python = home / SCRIPTS / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "borrowed.pth").write_text(f"{Path(click.__file__).parents[1]}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--ignore-installed", wheel)
    return home / SCRIPTS


class TestWheel:
    def test_it_is_for_every_platform(self, wheel: Path) -> None:
        assert wheel.name == f"headgate-{__version__}-py3-none-any.whl"

    def test_it_holds_the_package_and_nothing_else(self, wheel: Path) -> None:
        files = [path for path in (PROJECT / "src").rglob("*") if path.is_file() and path.suffix != ".pyc"]
        names = set(zipfile.ZipFile(wheel).namelist())
        information = {name for name in names if name.startswith(f"headgate-{__version__}.dist-info/")}
        assert names - information == {path.relative_to(PROJECT / "src").as_posix() for path in files}

    def test_it_says_that_it_is_typed(self, wheel: Path) -> None:
        assert "headgate/py.typed" in zipfile.ZipFile(wheel).namelist()

    def test_it_brings_its_licence(self, wheel: Path) -> None:
        assert f"headgate-{__version__}.dist-info/licenses/LICENSE" in zipfile.ZipFile(wheel).namelist()

    def test_its_base_install_is_small(self, wheel: Path) -> None:
        text = zipfile.ZipFile(wheel).read(f"headgate-{__version__}.dist-info/METADATA").decode()
        metadata = message_from_string(text)
        required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
        assert sorted(line.split(">")[0] for line in required) == [
            "aiohttp",
            "click",
            "http-sf",
            "publicsuffixlist",
            "rich",
            "yarl",
        ]
        assert {"all", "speed", "test"} <= set(metadata.get_all("Provides-Extra", []))
        assert metadata["Requires-Python"] == ">=3.11"
        assert metadata["License-Expression"] == "Apache-2.0"


class TestMetadata:
    """What a package index and a public host read."""

    @pytest.fixture
    def project(self) -> dict[str, object]:
        return tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def test_it_is_complete(self, project: dict[str, object]) -> None:
        assert project["authors"] == [{"name": "Headgate contributors"}]
        assert {"description", "readme", "license", "keywords", "classifiers", "requires-python"} <= set(project)
        assert "urls" not in project  # until there is a public home: the comment in pyproject.toml says where they go

    def test_the_citation_has_the_version(self) -> None:
        assert f"\nversion: {__version__}\n" in (PROJECT / "CITATION.cff").read_text(encoding="utf-8")

    def test_the_classifiers_name_versions_that_a_release_runs(self, project: dict[str, object]) -> None:
        prefix = "Programming Language :: Python :: 3."
        named = {one.rpartition(" ")[2] for one in project["classifiers"] if one.startswith(prefix)}  # type: ignore[attr-defined]
        (run,) = re.findall(r"^PYTHONS := (.+)$", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        workflow = (PROJECT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
        (matrix,) = re.findall(r"^ +python: (\[.+\])$", workflow, re.MULTILINE)
        assert named <= set(run.split()) == set(json.loads(matrix))
        assert min(named, key=lambda version: int(version[2:])) == str(project["requires-python"]).removeprefix(">=")

    def test_the_workflows_only_call_make(self) -> None:
        targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        for path in (PROJECT / ".github" / "workflows").iterdir():
            for line in re.findall(r"^ *- run: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE):
                program, target = line.split()[:2]
                assert program == "make"
                assert target in targets


OF_HEAVY_PACKAGES = {"headgate.integrations.scrapy"}
"""What these need is installed by ``make chaos`` only, which runs them for real."""


class TestInstalled:
    def test_the_command_runs(self, fresh: Path, tmp_path: Path) -> None:
        assert run(fresh / "headgate", "--version", cwd=tmp_path) == f"headgate {__version__}\n"

    def test_so_does_the_module(self, fresh: Path, tmp_path: Path) -> None:
        assert run(fresh / "python", "-m", "headgate", "--version", cwd=tmp_path) == f"headgate {__version__}\n"

    @pytest.mark.parametrize("which", ["module.ispkg", pytest.param("True", marks=pytest.mark.chaos)])
    def test_every_package_and_every_module_can_be_imported(self, fresh: Path, tmp_path: Path, which: str) -> None:
        walk = (
            "import headgate, importlib, json, pkgutil\n"
            "found = pkgutil.walk_packages(headgate.__path__, 'headgate.')\n"
            f"names = [module.name for module in found if {which}]\n"
            f"names = [name for name in names if '__main__' not in name and name not in {OF_HEAVY_PACKAGES}]\n"
            "print(json.dumps([importlib.import_module(name).__file__ for name in names]))"
        )
        files = json.loads(run(fresh / "python", "-W", "error", "-c", walk, cwd=tmp_path))
        assert len(files) > 20
        assert all(Path(file).is_relative_to(fresh.parent) for file in files)


def modules_after(statement: str) -> set[str]:
    """What a new interpreter has loaded for the statement's sake."""
    code = f"import sys, json; before = set(sys.modules)\n{statement}\n"
    code += "sys.stderr.write(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return set(json.loads(done.stderr))


class TestImport:
    def test_the_library_loads_no_other_package(self) -> None:
        loaded = {name.split(".")[0] for name in modules_after("import headgate")}
        assert not loaded & NOT_FOR_EVERYBODY
        assert {name for name in loaded if name not in sys.stdlib_module_names} == {"headgate"}

    def test_the_library_loads_no_loop_no_sockets_and_no_database(self) -> None:
        assert not {name.split(".")[0] for name in modules_after("import headgate")} & HEAVY

    def test_the_library_loads_few_modules(self) -> None:
        loaded = modules_after("import headgate")
        assert len(loaded) <= MOST_MODULES, sorted(loaded)

    def test_the_library_loads_neither_the_commands_nor_the_simulation(self) -> None:
        assert not [
            name for name in modules_after("import headgate") if name.startswith(("headgate.cli", "headgate.lab"))
        ]

    def test_the_library_works_without_any_other_package(self) -> None:
        code = (
            f"import sys; sys.path.insert(0, {str(PROJECT / 'src')!r})\n"
            "from headgate import AdaptiveRateLimiter\n"
            "limiter = AdaptiveRateLimiter()\n"
            "with limiter.permit('api.example.com') as permit:\n"
            "    print(permit.report(status_code=429, headers={'retry-after': '30'}).value)\n"
            "print(limiter.snapshot().keys[0].key)"
        )
        assert run(sys.executable, "-I", "-S", "-c", code).split() == ["rate_limited", "api.example.com"]

    @pytest.mark.parametrize("option", ["--help", "--version"])
    def test_the_help_of_the_command_loads_nothing_but_click(self, option: str) -> None:
        loaded = {
            name.split(".")[0] for name in modules_after(f"from headgate.cli import execute; execute(['{option}'])")
        }
        assert loaded & NOT_FOR_EVERYBODY == {"click"}
        assert not loaded & {"asyncio", "sqlite3", "ssl"}


def test_the_pre_commit_hooks_name_files_that_exist() -> None:
    hooks = (PROJECT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    named = re.findall(r"\b(?:tests|src|docs)/[\w/.]+\.\w+", hooks.replace("\\", ""))
    assert named
    assert [path for path in named if not (PROJECT / path).exists()] == []
