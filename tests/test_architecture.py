"""House rules that no linter knows, read from the syntax trees of src.

Reasons are data: nothing decides by the words of a sentence. Code has no people. Parts are composed: no long chains of
classes. A file is a room, not a hall.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "headgate"
LONGEST_FILE = 400
LONGEST_CHAIN = 3
PEOPLE = re.compile(r"\b(?:whoever|somebody|nobody|anybody|someone)\b", re.IGNORECASE)

SENTENCES = frozenset(
    [
        "complaint",
        "detail",
        "error_text",
        "message",
        "problem",
        "reason",
        "said",
        "sentence",
        "stopped",
        "text_of_error",
        "why",
        "words",
    ]
)
"""Names under which a sentence for people travels."""
SPLITS = frozenset(
    [
        "endswith",
        "find",
        "index",
        "partition",
        "removeprefix",
        "removesuffix",
        "rpartition",
        "rsplit",
        "split",
        "startswith",
    ]
)
PATTERNS = frozenset(["findall", "finditer", "fullmatch", "match", "search"])
READS_SERVERS = ("wire/",)
"""Where a server's own words are read, because some servers say what they mean in words alone."""


@functools.cache
def trees() -> dict[str, ast.Module]:
    files = sorted(SOURCE.rglob("*.py"))
    return {file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text("utf-8")) for file in files}


@functools.cache
def nodes() -> dict[str, list[ast.AST]]:
    """Of each file, what the tests below look at: walking through all trees takes a second."""
    seen = (ast.Compare, ast.Call, ast.ClassDef, ast.ImportFrom)
    return {file: [node for node in ast.walk(tree) if isinstance(node, seen)] for file, tree in trees().items()}


# ---------------------------------------------------------------------- decisions by words


def is_sentence(node: ast.expr) -> bool:
    """Whether an expression is a sentence by its name: ``reason``, ``report.stopped``, ``str(error)``."""
    if isinstance(node, ast.Name):
        return node.id in SENTENCES
    if isinstance(node, ast.Attribute):
        return node.attr in SENTENCES
    if isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Name) and called.id == "str" and node.args:
            of = node.args[0]
            return is_sentence(of) or (isinstance(of, ast.Name) and of.id in ("error", "exc", "fault", "refusal"))
        return isinstance(called, ast.Attribute) and called.attr in ("lower", "strip") and is_sentence(called.value)
    return False


def is_text(node: ast.expr, *, phrase: bool) -> bool:
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    return bool(re.search("[A-Za-z]", node.value)) and (not phrase or " " in node.value.strip())


def decides_by_words(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
        return any(is_text(one, phrase=True) for one in (node.left, *node.comparators))
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        whole, right = node.left, node.comparators[0]
        names_one_of_several = isinstance(right, ast.Tuple | ast.List | ast.Set | ast.Dict)
        return not names_one_of_several and (
            is_text(whole, phrase=True) or (is_text(whole, phrase=False) and is_sentence(right))
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method, of = node.func.attr, node.func.value
        if method in SPLITS and (node.args or node.keywords):
            return is_sentence(of) or any(is_text(one, phrase=True) for one in node.args)
        return method in PATTERNS and any(map(is_sentence, node.args))
    return False


def word_decisions() -> Iterator[str]:
    for name, found in nodes().items():
        if not name.startswith(READS_SERVERS):
            for node in found:
                if decides_by_words(node):
                    yield f"{name.partition('/')[0]}: {ast.unparse(node)}"


@pytest.mark.parametrize(
    "code",
    [
        "': paced at ' in line.sentence",
        "'no such table' in str(error)",
        "'again' not in said",
        "report.stopped.partition(':')",
        "reason.startswith('standstill')",
        "where.startswith('the environment')",
        "kind == 'no address'",
        "_NEXT.search(words)",
        "message.lower().split(':')",
    ],
)
def test_a_decision_by_words_is_found(code):
    assert decides_by_words(ast.parse(code, mode="eval").body)


@pytest.mark.parametrize("code", ["'requests' in limits", "key.partition(':')", "'\\0' in text", "' '.join(words)"])
def test_what_is_no_sentence_is_none(code):
    assert not decides_by_words(ast.parse(code, mode="eval").body)


NO_OTHER_WAY = frozenset(
    (
        "distributed: 'no such table' in str(error)",  # SQLite has no code of its own for it
        "distributed: str(fault).partition(' ')",  # the first word of a Redis error is its code
    )
)


@pytest.mark.no_cover
def test_nothing_decides_by_the_words_of_a_sentence():
    assert set(word_decisions()) <= NO_OTHER_WAY


# ---------------------------------------------------------------------- people


def test_code_has_no_people():
    files = sorted(SOURCE.rglob("*.py"))
    found = [line for file in files for line in file.read_text("utf-8").splitlines() if PEOPLE.search(line)]
    assert found == [], "say caller, waiter, process, listener or client"


# ---------------------------------------------------------------------- chains of classes


@functools.cache
def classes() -> dict[str, list[str]]:
    """Every class by ``module:Name`` with its bases, own ones by the same name, others as they are written."""
    named: dict[str, str] = {}
    written: dict[str, list[str]] = {}
    for file, found in nodes().items():
        module = file.removesuffix(".py").removesuffix("/__init__")
        package = module if file.endswith("__init__.py") else module.rpartition("/")[0]
        for node in found:
            if isinstance(node, ast.ClassDef):
                bases = (ast.unparse(base).partition("[")[0] for base in node.bases)
                written[f"{module}:{node.name}"] = [f"{module}:{base}" for base in bases]
            elif isinstance(node, ast.ImportFrom):
                parts = package.split("/")
                above = parts[: len(parts) - node.level + 1] if node.level else []
                below = (node.module or "").removeprefix("headgate").strip(".").split(".")
                origin = "/".join(filter(None, (*above, *below)))
                for one in node.names:
                    named.setdefault(f"{module}:{one.asname or one.name}", f"{origin}:{one.name}")

    def defined(name: str) -> str:
        """Through the packages that export it, to where it is defined."""
        passed: set[str] = set()
        while name not in written and name in named and name not in passed:
            passed.add(name)
            name = named[name]
        return name

    return {name: [defined(base) for base in bases] for name, bases in written.items()}


def chain(name: str) -> list[str]:
    """The longest line of own classes up from this one; protocols are not counted."""
    bases = classes().get(name, [])
    longest = max((chain(base) for base in bases if base in classes()), key=len, default=[])
    return (
        longest if any(base.rpartition(":")[2].rpartition(".")[2] == "Protocol" for base in bases) else [name, *longest]
    )


def is_exception(name: str) -> bool:
    last = name.rpartition(":")[2]
    return last.endswith(("Error", "Exception", "Warning")) or any(map(is_exception, classes().get(name, [])))


def test_no_long_chains_of_classes():
    long = {name for name in classes() if len(chain(name)) > LONGEST_CHAIN and not is_exception(name)}
    assert long == set(), "compose parts instead"


# ---------------------------------------------------------------------- rooms

LONG_FILES: frozenset[str] = frozenset()
"""Files over the limit. They only become fewer."""


def test_a_file_is_a_room():
    lengths = {file: len(file.read_text("utf-8").splitlines()) for file in SOURCE.rglob("*.py")}
    long = {file.relative_to(SOURCE).as_posix() for file, length in lengths.items() if length > LONGEST_FILE}
    assert not long, f"more than {LONGEST_FILE} lines: move what is a subject of its own into a file of its own"
