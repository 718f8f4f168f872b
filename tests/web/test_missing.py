"""Without its libraries the page says what to install, and nothing else needs them."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
sys.modules["{0}"] = None
import headgate
try:
    import headgate.web
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("library", ["starlette", "uvicorn"])
def test_the_error_names_the_extra(library):
    said = subprocess.run([sys.executable, "-c", WITHOUT.format(library)], capture_output=True, text=True, check=True)
    assert said.stdout == "WebMissingError the page needs Starlette and uvicorn: pip install 'headgate[web]'.\n"


def test_importing_headgate_loads_neither():
    program = "import sys, headgate; print({'starlette', 'uvicorn', 'headgate.web'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "set()\n"
