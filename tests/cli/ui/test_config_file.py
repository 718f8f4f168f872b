"""Configuration files: which are found, what each may set, and what wins."""

import json
import os
import re
from pathlib import Path

import click
import pytest

from headgate.cli import group
from headgate.cli.ui import config_file
from headgate.cli.ui.config_file import COMMANDS, PROJECT_OPTIONS, option_names, project_folders


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository, seen from a folder inside of it; the user's own folder is empty."""
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    (root / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(root / "a" / "b")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return root


@pytest.fixture
def user(project, tmp_path):
    folder = tmp_path / "home" / "headgate"
    folder.mkdir(parents=True)
    return folder / "headgate.toml"


def options(said):
    assert said.code == 0, said.err
    return {name: {row["option"]: row for row in rows} for name, rows in json.loads(said.out)["commands"].items()}


class TestFound:
    def test_headgate_toml_of_a_folder_above(self, headgate, project):
        (project / "headgate.toml").write_text("workers = 7\n")
        row = options(headgate("config", "run", "--json"))["run"]["workers"]
        assert (row["value"], row["source"]) == ("7", str(project / "headgate.toml"))

    def test_pyproject_of_this_folder(self, headgate, project, monkeypatch):
        monkeypatch.chdir(project)
        (project / "pyproject.toml").write_text('[tool.headgate]\nlimits = {requests = "5/s"}\n')
        row = options(headgate("config", "proxy", "--json"))["proxy"]["limits"]
        assert (row["value"], row["source"]) == ("requests=5/s", "pyproject.toml [tool.headgate]")

    def test_the_nearest_wins_and_a_pyproject_without_a_table_is_passed_over(self, headgate, project):
        (project / "headgate.toml").write_text("workers = 1\n")
        (project / "a" / "headgate.toml").write_text("workers = 2\n")
        (project / "a" / "b" / "pyproject.toml").write_text('[project]\nname = "headgate-user"\n')
        assert options(headgate("config", "--json"))["run"]["workers"]["value"] == "2"

    def test_nothing_above_the_root_of_the_project(self, headgate, project):
        (project.parent / "headgate.toml").write_text("workers = 1\n")
        assert options(headgate("config", "--json"))["run"]["workers"]["source"] == "default"

    def test_without_a_project_only_this_folder(self, tmp_path):
        (tmp_path / "a").mkdir()
        if not any((each / mark).exists() for each in (tmp_path, *tmp_path.parents) for mark in (".git", ".hg")):
            assert list(project_folders(str(tmp_path / "a"))) == [str(tmp_path / "a")]

    def test_the_way_up_is_bounded(self, monkeypatch):
        monkeypatch.setattr(config_file, "ROOT_MARKS", ("no such mark",))
        monkeypatch.setattr(config_file, "PYPROJECT", "no such file")
        deep = "/" + "/".join("x" * 100)
        assert list(project_folders(deep)) == [deep]

    def test_a_file_of_another_user_is_not_read(self, headgate, project, monkeypatch):
        (project / "headgate.toml").write_text("workers = 7\n")
        monkeypatch.setattr(config_file, "is_of_another_user", lambda path: True)
        said = headgate("config", "--json")
        assert options(said)["run"]["workers"]["source"] == "default"
        assert "belongs to another user and was not read" in said.err

    def test_what_was_read_is_said_in_one_line(self, headgate, project):
        (project / "headgate.toml").write_text("max-attempts = 2\n[run]\nworkers = 7\n")
        said = headgate("run", "no-such-file", "-o", "out", "--to", "http://127.0.0.1:9")
        assert said.err.splitlines()[0] == f"headgate: read {project / 'headgate.toml'} (max-attempts, workers)."

    def test_a_file_with_nothing_for_the_command_is_not_spoken_of(self, headgate, project):
        (project / "headgate.toml").write_text("[crawl]\ndepth = 2\n")
        assert "headgate.toml" not in headgate("run", "no-such-file", "-o", "o", "--to", "http://127.0.0.1:9").err


class TestProjectFiles:
    """A cloned repository must not be able to send a key elsewhere, run a command, or write a file."""

    @pytest.mark.parametrize(
        ("command", "line"),
        [
            ("run", 'to = "https://elsewhere.example"'),
            ("run", 'keys = ["cmd:touch /tmp/hello"]'),
            ("run", 'store = "redis://elsewhere.example"'),
            ("run", 'output = "/home/user/.bashrc"'),
            ("run", 'ledger = "elsewhere"'),
            ("run", 'trace = "elsewhere"'),
            ("run", 'report = "elsewhere.html"'),
            ("run", "web = 80"),
            ("run", 'template = "/etc/passwd"'),
            ("crawl", 'key-header = "X-Elsewhere"'),
            ("crawl", "allow-private = true"),
            ("crawl", 'hosts = ["*"]'),
            ("crawl", 'warc = "elsewhere"'),
            ("proxy", 'to = ["https://elsewhere.example"]'),
            ("proxy", 'host = "0.0.0.0"'),
            ("proxy", 'allow-host = ["elsewhere.example"]'),
        ],
    )
    @pytest.mark.parametrize("place", ["headgate.toml", "section", "pyproject.toml"])
    def test_may_not_set_this(self, headgate, project, command, line, place):
        text = {"headgate.toml": line, "section": f"[{command}]\n{line}", "pyproject.toml": f"[tool.headgate]\n{line}"}
        name = "pyproject.toml" if place == "pyproject.toml" else "headgate.toml"
        (project / name).write_text(text[place])
        words = {
            "run": ["rows.jsonl", "-o", "out", "--to", "http://127.0.0.1:9"],
            "crawl": ["http://127.0.0.1:9", "-o", "out"],
            "proxy": ["--to", "http://127.0.0.1:9"],
        }
        said = headgate(command, *words[command])
        assert said.code == 2
        assert "which a file that is found automatically may not set" in said.err
        assert f"--config {project / name}" in said.err

    def test_underscores_and_names_of_parameters_are_no_way_around(self, headgate, project):
        for line in ('key_header = "X"', "allow_private = true"):
            (project / "headgate.toml").write_text(line)
            assert "may not set" in headgate("crawl", "http://127.0.0.1:9", "-o", "out").err
        for line in ('sources = ["env:X"]', 'targets = ["x"]', 'seed_file = "x"'):
            (project / "headgate.toml").write_text(line)
            assert "has an unknown option" in headgate("crawl", "http://127.0.0.1:9", "-o", "out").err

    @pytest.mark.parametrize(
        "words", [["run", "rows.jsonl", "-o", "out", "--to", "http://127.0.0.1:9"], ["config", "run"]]
    )
    def test_an_unknown_option_in_the_table_of_another_command_is_reported(self, headgate, project, words):
        (project / "headgate.toml").write_text('[crawl]\nto = "openai"\n')
        said = headgate(*words)
        assert said.code == 2
        assert "headgate.toml has an unknown option '[crawl] to'" in said.err

    def test_what_another_command_may_only_have_from_a_chosen_file_does_not_stop_this_one(self, headgate, project):
        (project / "headgate.toml").write_text('workers = 3\n[proxy]\nto = "openai"\n')
        assert headgate("config", "run").code == 0

    def test_every_option_of_the_list_exists(self):
        context = click.Context(group)
        known = {name for each in COMMANDS for name in option_names(group.get_command(context, each)).values()}
        assert known >= PROJECT_OPTIONS

    def test_none_of_the_list_says_where_something_goes(self):
        """An option whose value is a path, a URL or an address is never a project's to set."""
        context = click.Context(group)
        for each in COMMANDS:
            command = group.get_command(context, each)
            names = option_names(command)
            for parameter in command.params:
                if names.get(parameter.name) in PROJECT_OPTIONS and parameter.metavar:
                    words = ("FILE", "URL", "PATH", "HOST", "ADDRESS", "SOURCE", "PORT", "machine")
                    assert not any(word in parameter.metavar for word in words), parameter.opts
                    assert parameter.metavar != "OUT"

    def test_the_manual_names_them_all(self):
        page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
        told = page[page.index("**What a project may set.**") : page.index("It may not\nset where")]
        assert set(re.findall(r"`([a-z-]+)`", told)) == PROJECT_OPTIONS

    def test_the_same_file_may_when_it_is_named(self, headgate, project):
        file = project / "headgate.toml"
        file.write_text('to = "openai"\n')
        assert options(headgate("config", "--config", file, "--json"))["run"]["to"]["value"] == "openai"

    def test_none_reads_no_file(self, headgate, project):
        (project / "headgate.toml").write_text('to = "openai"\n')
        assert options(headgate("config", "--config", "none", "--json"))["run"]["to"]["source"] == "default"


class TestOrder:
    def test_typed_then_environment_then_project_then_user(self, headgate, project, user, monkeypatch):
        user.write_text('store = "none"\nworkers = 1\nmax-cost = 5\n')
        (project / "headgate.toml").write_text("workers = 2\n")
        monkeypatch.setenv("HEADGATE_STORE", "machine")
        found = options(headgate("config", "run", "--json"))["run"]
        assert found["store"]["source"] == "environment: HEADGATE_STORE"
        assert (found["workers"]["value"], found["max-cost"]["source"]) == ("2", str(user))

    def test_the_section_wins_over_the_top_level(self, headgate, project):
        (project / "headgate.toml").write_text("workers = 1\n[crawl]\nworkers = 3\n")
        found = options(headgate("config", "--json"))
        assert (found["run"]["workers"]["value"], found["crawl"]["workers"]["value"]) == ("1", "3")

    def test_the_variable_names_the_only_file(self, headgate, project, user, tmp_path, monkeypatch):
        user.write_text("max-cost = 5\n")
        (tmp_path / "own.toml").write_text("workers = 9\n")
        monkeypatch.setenv("HEADGATE_CONFIG", str(tmp_path / "own.toml"))
        found = options(headgate("config", "run", "--json"))["run"]
        assert (found["workers"]["value"], found["max-cost"]["source"]) == ("9", "default")
        said = headgate("run", "no-such-file", "-o", "o", "--to", "http://127.0.0.1:9")
        assert said.err.startswith(f"headgate: read {tmp_path / 'own.toml'} (workers).")

    def test_targets_and_keys_of_the_users_own_file_may_be_tables(self, headgate, project, user):
        user.write_text('[proxy.to]\nlocal = "http://127.0.0.1:9"\n[proxy.keys]\nlocal = "env:KEY"\n')
        found = options(headgate("config", "proxy", "--json"))["proxy"]
        assert (found["to"]["value"], found["keys"]["value"]) == ("local=http://127.0.0.1:9", "local=env:KEY")


class TestMistakes:
    def test_a_slip_is_named_with_what_was_meant(self, headgate, project):
        (project / "headgate.toml").write_text("[run]\nworker = 7\n")
        said = headgate("run", "x", "-o", "y", "--to", "http://127.0.0.1:9")
        assert said.code == 2
        assert 'did you mean "workers"?' in said.err

    def test_a_file_that_other_users_can_change_is_not_trusted(self, headgate, user):
        user.write_text('to = "https://elsewhere.example"\n')
        os.chmod(user, 0o666)
        said = headgate("config")
        assert said.code == 2
        assert "can be changed by other users" in said.err

    def test_a_value_that_cannot_be(self, headgate, project):
        (project / "headgate.toml").write_text('workers = "many"\n')
        assert headgate("config").code == 2

    def test_no_toml_a_long_one_and_none_at_all(self, headgate, tmp_path, project):
        (tmp_path / "x.toml").write_text("= 3")
        assert "is not valid TOML" in headgate("config", "--config", tmp_path / "x.toml").err
        (tmp_path / "x.toml").write_text("#" * (config_file.LARGEST + 1))
        assert "is larger than" in headgate("config", "--config", tmp_path / "x.toml").err
        assert "cannot read" in headgate("config", "--config", tmp_path / "nowhere.toml").err
