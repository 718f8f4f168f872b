"""Run the tests of the source archive on every version of Python: `python -m release.versions 3.11 3.12 3.13 3.14`.

Each version gets the archive of dist/, unpacked into .release/VERSION, and runs `make test` there. A version that the
classifiers name must be here and pass; another one is run if it is here.
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
    words = ["timeout", "--kill-after=10", str(LONGEST), "make", "-C", str(unpacked), "test", f"PYTHON={python}"]
    return subprocess.run(words, env=plain).returncode == 0


def main(versions: list[str]) -> int:
    needed = supported()
    report, failed = [], sorted(needed - set(versions))
    for version in versions:
        python, start = interpreter(version), time.monotonic()
        if python is None:
            said = "is not here" + (", and the classifiers name it" if version in needed else "; not run")
            fine = version not in needed
        else:
            print(f"=== Python {version}: {python}", flush=True)
            fine = run_tests(version, python)
            said = f"{'passed' if fine else 'FAILED'} in {(time.monotonic() - start) / 60:.1f} min"
        report.append(f"Python {version}: {said}")
        failed += [] if fine else [version]
    print("\n".join(report))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
