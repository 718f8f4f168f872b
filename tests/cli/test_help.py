"""Every command and every option is documented, by words and by example."""

import inspect
import subprocess
import sys
from pathlib import Path

import click
import pytest

from headgate import cli
from headgate.cli import COMMANDS, group
from headgate.cli.ui.options import ExampleCommand

README = Path(__file__).parents[2] / "README.md"


def commands():
    context = click.Context(group)
    return [(name, group.get_command(context, name)) for name in group.list_commands(context)]


@pytest.mark.parametrize(("name", "command"), commands())
def test_every_option_has_a_help_text(name, command):
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"headgate {name} {parameter.opts[-1]}"


@pytest.mark.parametrize(("name", "command"), commands())
def test_every_command_teaches_by_examples_that_are_real(name, command):
    assert isinstance(command, ExampleCommand)
    assert len(command.examples) >= 2
    own = [typed for typed, _ in command.examples if typed.startswith(f"headgate {name}")]
    assert own
    known = {option for parameter in command.params for option in parameter.opts}
    for typed in own:
        for word in typed.partition("|")[0].split():
            assert not word.startswith("--") or word in known, f"{typed!r} uses {word}"


def test_a_long_comment_of_an_example_is_a_comment_on_every_line():
    command = ExampleCommand("it", params=[], examples=[("headgate it", "many words " * 20)])
    examples = command.get_help(click.Context(command)).partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
    assert len(examples) > 3
    assert [line.split()[0] for line in examples] == ["#"] * (len(examples) - 1) + ["headgate"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_page_shows_its_examples(headgate, name):
    page = headgate(name, "--help")
    assert page.code == 0
    assert "Examples:" in page.out
    assert "Options:" in page.out
    assert page.err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_readme_speaks_of_every_command(name):
    assert f"headgate {name}" in README.read_text(encoding="utf-8")


PAGES = {"run": "batch-file.md", "crawl": "crawl.md", "proxy": "proxy.md", "watch": "watching.md"}


@pytest.mark.parametrize("name", PAGES)
def test_every_option_is_in_the_page_of_its_command(name):
    text = (README.parent / "docs" / PAGES[name]).read_text(encoding="utf-8")
    command = group.get_command(click.Context(group), name)
    options = {one for parameter in command.params for one in parameter.opts if one.startswith("--")}
    missing = [option for option in sorted(options - {"--output"}) if option not in text]  # that is there as -o
    assert not missing, f"describe these options in docs/{PAGES[name]}"


@pytest.mark.parametrize(("name", "command"), commands())
def test_every_option_is_read(name, command):
    taken = inspect.signature(inspect.unwrap(command.callback)).parameters
    code = "".join(path.read_text(encoding="utf-8") for path in Path(cli.__file__).parent.rglob("*.py"))
    passed = {one.name for one in command.params if one.expose_value}
    unread = [option for option in sorted(passed - set(taken)) if f'given["{option}"]' not in code]
    assert not unread, f"headgate {name} has options whose value is read nowhere"


def test_the_first_page_says_where_to_start(headgate):
    page = headgate("--help")
    assert page.code == 0
    assert page.out.index("Start here:") < page.out.index("See it work:")
    for name, entry in COMMANDS.items():
        assert name in page.out
        assert entry.summary in page.out
    assert headgate().out == page.out


def test_the_version_is_told(headgate):
    assert headgate("--version").out.startswith("headgate ")


def test_the_first_page_imports_nothing_heavy():
    code = (
        "import sys; from headgate.cli import execute; execute(['--help']); "
        "heavy = {'aiohttp', 'rich', 'yarl', 'headgate.lab', 'headgate.cli.commands.demo'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def test_a_pipe_gets_no_colours(headgate, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for arguments in (["--help"], ["demo", "--help"], ["nonsense"]):
        said = headgate(*arguments)
        assert "\x1b" not in said.out + said.err
