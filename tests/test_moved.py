"""Module paths of earlier versions still import, and say where the name lives now."""

import importlib
import subprocess
import sys

import pytest

import headgate
from headgate.moved import MOVED


@pytest.mark.parametrize("old", sorted(MOVED))
def test_an_old_path_leads_to_the_same_names_and_warns(old):
    path, renamed = MOVED[old]
    new = importlib.import_module(path)
    names = renamed or {name: name for name in vars(new) if not name.startswith("_")}
    moved = importlib.import_module(old)
    for before, now in names.items():
        with pytest.warns(DeprecationWarning, match="has moved"):
            assert getattr(moved, before) is getattr(new, now)


def test_a_name_that_never_was_is_none():
    with pytest.raises(ImportError):
        from headgate.observe.watched import Unheard  # noqa: F401


def test_importing_headgate_loads_nothing_for_it():
    program = "import sys, headgate; sys.exit('headgate.observe.monitor' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert headgate.__version__
