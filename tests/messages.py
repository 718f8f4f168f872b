"""Every sentence that the program can show, collected from its sources into one file that can be read in one go.

    python -m tests.messages          # writes tests/messages.txt

A message is a string of two words or more that is neither a docstring (a command's help is one of Click's, and counts)
nor SQL, a log format, a pattern or markup. Values are shown as ``{name}``.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "headgate"
CATALOGUE = Path(__file__).with_name("messages.txt")
WORDS = re.compile(r"[a-z]{2,}\S* (?:\S+ )*\S*[a-z]{2,}", re.IGNORECASE)
NOT_PROSE = re.compile(
    r"^\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|WITH |FROM |WHERE |ORDER BY|BEGIN|ALTER|DROP|<)|\)\?|\(\?|;\s*$"
)


def catalogue() -> str:
    """The messages of each source file, in the order in which they stand there."""
    parts = []
    for path in sorted(SOURCES.rglob("*.py")):
        found = list(dict.fromkeys(messages_in(path.read_text(encoding="utf-8"))))
        if found:
            parts.append(f"## {path.relative_to(SOURCES).as_posix()}\n" + "\n".join(f"- {one}" for one in found) + "\n")
    return "\n".join(parts)


def messages_in(source: str) -> Iterator[str]:
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(text) for text in _docstrings(nodes)}
    for node, is_inner in _strings(nodes):
        if is_inner or id(node) in docstrings:
            continue
        text = " ".join(_text_of(node).split())
        if WORDS.search(text) and not NOT_PROSE.search(text):
            yield text


def _docstrings(nodes: list[ast.AST]) -> Iterator[ast.Constant]:
    """What Python or a reader of the source sees; the help of a command is shown to users."""
    for node in nodes:
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        is_command = isinstance(node, ast.FunctionDef) and any(
            "command" in ast.dump(one) for one in node.decorator_list
        )
        for statement in body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and not is_command:
                yield statement.value


def _strings(nodes: list[ast.AST]) -> Iterator[tuple[ast.expr, bool]]:
    inner: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            inner |= {
                id(part)
                for part in ast.walk(node)
                if part is not node and isinstance(part, ast.Constant | ast.JoinedStr)
            }
    for node in nodes:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            yield node, id(node) in inner


def _text_of(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr)
    return "".join(_text_of(part) if isinstance(part, ast.Constant) else _placeholder(part) for part in node.values)


def _placeholder(part: ast.expr) -> str:
    assert isinstance(part, ast.FormattedValue)
    name = ast.unparse(part.value)
    return "{" + (name if len(name) <= 24 else "...") + "}"


if __name__ == "__main__":
    CATALOGUE.write_text(catalogue(), encoding="utf-8")
    print(f"{CATALOGUE.relative_to(ROOT)} written", file=sys.stderr)
