"""Build hook of the manual: write the tables that the code already has.

| line in a page        | is replaced by                                                    |
|-----------------------|-------------------------------------------------------------------|
| ``<!-- commands -->`` | a section per command: usage, what it does, examples, options      |
| ``<!-- metrics -->``  | the table of Prometheus metrics                                    |

These parts of the manual can therefore never be out of date.
"""

from __future__ import annotations

import re
from typing import Any

import click

from headgate.cli import COMMANDS, group
from headgate.observe.exporters.metrics import METRICS


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of each page."""
    for placeholder, write in PARTS.items():
        if placeholder in markdown:
            markdown = markdown.replace(placeholder, write())
    return markdown


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
        lines += ["", "```console"]
        for typed, purpose in examples:
            lines += [f"# {purpose}", f"$ {typed}"]
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
    return re.sub(r"([*_<>\[\]`{}])", r"\\\1", text)


def metric_reference() -> str:
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for info in METRICS:
        name = info.name + "_total" * (info.kind == "counter")
        lines.append(f"| `{name}` | {info.kind} | {', '.join(info.labels)} | {cell(info.says)} |")
    return "\n".join(lines)


PARTS = {"<!-- commands -->": command_reference, "<!-- metrics -->": metric_reference}
