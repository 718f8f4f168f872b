"""Build hook of the manual: write the tables that the code already has.

| a line that ends in   | is replaced by                                                    |
|-----------------------|-------------------------------------------------------------------|
| ``<!-- commands -->`` | a section per command: usage, what it does, examples, options      |
| ``<!-- metrics -->``  | the table of Prometheus metrics                                    |

These parts of the manual can therefore never be out of date. The pages are also copied into the site as Markdown, which
is what ``llms.txt`` links to.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from headgate.cli import COMMANDS, group
from headgate.observe.exporters.metrics import METRICS


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of each page."""
    for placeholder, write in PARTS.items():
        before, found, after = markdown.partition(placeholder)
        if found:
            markdown = before[: before.rfind("\n") + 1] + write() + after
    return "\n".join(map(unescape_pipes, markdown.split("\n")))


def unescape_pipes(line: str) -> str:
    """In a table, ``\\|`` within code is a pipe on GitHub; here the backslash would be shown."""
    if not line.startswith("|"):
        return line
    return re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), line)


def on_post_build(config: Mapping[str, Any]) -> None:
    """Called by mkdocs at the end."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    for page in docs.rglob("*.md"):
        target = site / page.relative_to(docs)
        target.write_text(on_page_markdown(page.read_text(encoding="utf-8")), encoding="utf-8")


def command_reference() -> str:
    context = click.Context(group, info_name="headgate")
    parts = []
    for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
        parts.append(f"## {section}")
        for name, entry in COMMANDS.items():
            if entry.section == section:
                command = group.get_command(context, name)
                assert command is not None
                parts.append(command_section(name, command, context))
    return "\n\n".join(parts)


def command_section(name: str, command: click.Command, parent: click.Context) -> str:
    context = click.Context(command, info_name=name, parent=parent)
    usage = f"headgate {name} {' '.join(command.collect_usage_pieces(context))}"
    lines = [f"### headgate {name}", "", "```text", usage, "```", "", paragraphs(command.help or "")]
    examples = getattr(command, "examples", ())
    if examples:
        lines += ["", "```sh"]
        for typed, purpose in examples:
            lines += [f"# {purpose}", typed]
        lines.append("```")
    lines += ["", "| option | meaning |", "|---|---|"]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            option, meaning = record
            lines.append(f"| {cell_code(option)} | {cell(meaning)} |")
    return "\n".join(lines)


def paragraphs(text: str) -> str:
    """Click's help text as Markdown: its paragraphs, with what Markdown would read as markup kept literal."""
    found = [re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n", text.replace("\b", ""))]
    return "\n\n".join(escape(part) for part in found if part)


def cell(text: str) -> str:
    return escape(re.sub(r"\s+", " ", text).strip()).replace("|", "\\|")


def cell_code(text: str) -> str:
    return "`" + re.sub(r"\s+", " ", text).strip().replace("|", "\\|") + "`"


def escape(text: str) -> str:
    return re.sub(r"([*_\[\]`{}])", r"\\\1", html.escape(text, quote=False))


def metric_reference() -> str:
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for info in METRICS:
        name = info.name + "_total" * (info.kind == "counter")
        lines.append(f"| `{name}` | {info.kind} | {', '.join(info.labels)} | {cell(info.says)} |")
    return "\n".join(lines)


PARTS = {"<!-- commands -->": command_reference, "<!-- metrics -->": metric_reference}
