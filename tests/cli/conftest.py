import subprocess
import sys
from types import SimpleNamespace

import pytest

from headgate.cli import execute as run


@pytest.fixture
def headgate(capsys):
    """Run the command line in this process: ``headgate("limits", url)`` gives code, out and err."""

    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return SimpleNamespace(code=code, out=said.out, err=said.err)

    return call


@pytest.fixture
def headgate_process():
    """Start ``headgate`` as a process of its own; whatever still runs at the end of the test is killed."""
    started = []

    def start(*arguments, **options):
        settings = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = [sys.executable, "-m", "headgate", *map(str, arguments)]
        process = subprocess.Popen(command, **(settings | options))
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
