"""What goes wrong is told in one sentence on stderr, with the exit code that belongs to it."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

import headgate.cli as cli
from headgate.__main__ import main


def assert_one_sentence(result):
    assert result.out == ""
    assert result.err.startswith("headgate: ")
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err


@pytest.mark.parametrize(("typed", "meant"), [("dmeo", "demo"), ("mok", "mock"), ("limit", "limits")])
def test_a_mistyped_command_is_met_with_the_nearest_name(headgate, typed, meant):
    result = headgate(typed)
    assert_one_sentence(result)
    assert result.code == 2
    assert f'did you mean "{meant}"?' in result.err


def test_a_command_like_no_other_is_met_with_all_of_them(headgate):
    result = headgate("xyzzy")
    assert_one_sentence(result)
    assert result.code == 2
    assert all(name in result.err for name in cli.COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["mock", "--rate", "fast"], "50/s"),
        (["mock", "--rate", "0/s"], "above 0"),
        (["mock", "--step", "10s"], "0.5@10s"),
        (["mock", "--outage", "10s"], "12s+3s"),
        (["mock", "--latency", "long"], "40ms"),
        (["mock", "--algorithm", "guess"], "bucket"),
        (["mock", "--headers", "klingon"], "openai"),
        (["mock", "--burst", "0"], "burst"),
        (["mock", "--port", "70000"], "65535"),
        (["mock", "--nonsense"], "--nonsense"),
        (["mock", "--port", "abc"], "'abc' is not a whole number. See"),
        (["mock", "--seed", "1.5"], "'1.5' is not a whole number. See"),
        (["mock", "--outage", "10s+0s"], "longer than 0 s"),
        (["mock", "--at-once", "3"], "--at-once is for --algorithm concurrency"),
        (["mock", "--burst", "3", "--algorithm", "window"], "--burst is for --algorithm bucket"),
        (["mock", "--burst", "3", "--algorithm", "concurrency"], "--burst is for --algorithm bucket"),
        (["demo", "surplus"], 'See "headgate demo --help"'),
        (["demo", "-o"], 'See "headgate demo --help"'),
        (["demo", "-o", "x.png"], "the picture is an SVG file; end its name with .svg. See"),
        (["demo", "--seconds", "nan"], "'nan' is not a number"),
        (["demo", "--seconds", "soon"], "'soon' is not a number"),
        (["demo", "--calls", "1"], "20"),
        (["demo", "-o", "/no/such/directory/p.svg"], "directory"),
        (["limits"], "URL"),
        (["limits", "api.example.com"], "https://"),
        (["limits", "ftp://example.com"], "https://"),
        (["limits", "http://"], "https://"),
        (["limits", "http://[::1"], "https://"),
        (["limits", "http://example.com:99999/"], "https://"),
        (["limits", "http://127.0.0.1:1/", "-H", "no colon"], "Name: value"),
        (["limits", "http://127.0.0.1:1/", "--bearer-env", "HEADGATE_NO_SUCH_NAME"], "--bearer-env"),
        (["limits", "http://127.0.0.1:1/", "-X", "BAD METHOD"], "method"),
        (["limits", "http://127.0.0.1:1/", "--timeout", "0"], "timeout"),
    ],
)
def test_a_wrong_command_line_says_what_is_right(headgate, arguments, word):
    result = headgate(*arguments)
    assert_one_sentence(result)
    assert result.code == 2
    assert word in result.err
    assert "--help" in result.err


def test_ctrl_c_anywhere_is_exit_code_4(headgate, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.group, "invoke", interrupt)
    result = headgate("demo")
    assert result.code == 4
    assert result.err.strip() == "headgate: stopped."


def test_ctrl_c_while_the_command_line_is_imported_is_exit_code_4_too(monkeypatch, capsys):
    class Interrupted(ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "headgate.cli", Interrupted("headgate.cli"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 4
    assert capsys.readouterr().err == "\nheadgate: stopped.\n"


def test_a_bug_of_ours_is_a_sentence_too_and_shows_no_key(headgate, monkeypatch):
    def break_down(*_, **__):
        raise RuntimeError("Authorization: Bearer abcdefgh12345678")

    monkeypatch.setattr(cli.group, "invoke", break_down)
    result = headgate("demo")
    assert_one_sentence(result)
    assert result.code == 3
    assert "HEADGATE_DEBUG=1" in result.err
    assert "abcdefgh" not in result.err
    monkeypatch.setenv("HEADGATE_DEBUG", "1")
    with pytest.raises(RuntimeError):
        headgate("demo")


def test_a_reader_who_leaves_is_no_error(headgate_process):
    process = headgate_process("--help")
    process.stdout.close()
    process.stdout = None
    assert process.wait(60) == 0
    assert "Traceback" not in process.stderr.read()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["mock", "--json"]])
def test_output_that_does_not_fit_is_one_sentence(headgate_process, arguments):
    with open("/dev/full", "w") as full:
        process = headgate_process(*arguments, stdout=full)
        assert process.wait(60) == 3
    assert process.stderr.read() == "headgate: cannot write the output (No space left on device).\n"
