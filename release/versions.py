"""Run the tests of the source archive on every version of Python: `python -m release.versions 3.11 3.12 3.13 3.14`.

Each version gets the archive of dist/, unpacked into .release/VERSION, and runs `make test` there, one after the other.
A version that the classifiers name must be installed and pass; any other one is run if it is installed. The last
lines are a table of what was run.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1]
FOLDER = PROJECT / ".release"
LONGEST = 90 * 60
"""Seconds for the tests of one version; tests that hang are a failure too."""
INSTALL_WITHIN = 15 * 60
CLASSIFIER = "Programming Language :: Python :: "


def supported() -> set[str]:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    found = {one.removeprefix(CLASSIFIER) for one in project["classifiers"] if one.startswith(CLASSIFIER)}
    return {version for version in found if version.count(".") == 1}


def interpreter(version: str) -> str | None:
    """On the path, or of pyenv, whose shims may be there without a version behind them."""
    pyenv = os.path.expanduser(os.environ.get("PYENV_ROOT", "~/.pyenv"))
    places = [shutil.which(f"python{version}"), *sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python"))]
    check = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    for path in filter(None, places):
        if subprocess.run([path, "-c", check], capture_output=True, timeout=60).returncode == 0:
            return path
    return None


def run_tests(version: str, python: str) -> bool:
    (sdist,) = (PROJECT / "dist").glob("headgate-*.tar.gz")
    folder = FOLDER / version
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "VIRTUAL_ENV"))
    }
    install(unpacked, python, plain)
    words = ["timeout", "--kill-after=10", str(LONGEST), "make", "-C", str(unpacked), "test", f"PYTHON={python}"]
    return subprocess.run(words, env=plain).returncode == 0


def install(unpacked: Path, python: str, environment: dict[str, str]) -> None:
    """Make .venv with uv, in seconds; if that fails, `make test` makes it with pip."""
    uv, place = Path(sys.executable).parent / "uv", unpacked / ".venv"
    if not uv.exists():
        return
    steps = (
        [uv, "venv", "--quiet", "--seed", "--python", python, place],
        [uv, "pip", "install", "--quiet", "--python", place / "bin" / "python", "-e", f"{unpacked}[all,test,check]"],
    )
    if all(subprocess.run(words, env=environment, timeout=INSTALL_WITHIN).returncode == 0 for words in steps):
        (place / ".ready").touch()
    else:
        shutil.rmtree(place, ignore_errors=True)


def main(versions: list[str]) -> int:
    needed = supported()
    report = [
        (version, "-", "FAILED: the classifiers name it, but it is not in PYTHONS", "")
        for version in sorted(needed - set(versions))
    ]
    for version in versions:
        python, start = interpreter(version), time.monotonic()
        if python is None:
            result = (
                "FAILED: not installed, but the classifiers name it" if version in needed else "not run: not installed"
            )
            report.append((version, "-", result, ""))
            continue
        print(f"=== Python {version}: {python}", flush=True)
        result = "passed" if run_tests(version, python) else "FAILED"
        report.append((version, python, result, f"{(time.monotonic() - start) / 60:.1f} min"))
        print(f"=== Python {version}: {result}", flush=True)
    widths = [max(len(row[column]) for row in report) for column in range(3)]
    for row in report:
        print(
            "Python "
            + "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]).rstrip()
        )
    return any(result.startswith("FAILED") for _, _, result, _ in report)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
