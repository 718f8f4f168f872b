"""The results of research as a page in a terminal, as Markdown or as JSON.

All three are made of the same fields, without the keys that were used. Titles and texts come from outside: they can
neither move the cursor nor become markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from ...formatting import format_seconds, plural
from ...research import Finding, ProviderReport, ResearchResult
from ..ui.terminal import SecretFilter

FORMS = ("page", "markdown", "json")
LONGEST_SNIPPET = 280
WIDEST = 100
"""Columns; longer lines are hard to read."""
MARKS = {"complete": "✓", "partial": "~", "failed": "✗", "skipped": "-", "asking": "…"}
COLOURS = {"complete": "green", "partial": "yellow", "failed": "red", "skipped": "yellow"}
WORDS = {"complete": "complete", "partial": "stopped midway", "failed": "failed", "skipped": "skipped"}


def render(result: ResearchResult, form: str, hide: SecretFilter, *, plain: bool = True) -> str:
    """``plain``: without colours, whatever the terminal supports."""
    fields = hide.inside({**result.metadata, "findings": [as_fields(*each) for each in enumerate(result.findings, 1)]})
    if form == "json":
        return json.dumps(fields, ensure_ascii=False, indent=2, default=str)
    return as_markdown(fields, summary(result)) if form == "markdown" else as_page(fields, summary(result), plain)


def as_fields(place: int, finding: Finding) -> dict[str, Any]:
    return {
        "place": place,
        "title": finding.title,
        "url": finding.url,
        "snippet": finding.snippet,
        "content": finding.content,
        "published_at": None if finding.published_at is None else finding.published_at.isoformat(),
        "score": round(finding.score, 6),
        "places": dict(finding.places),
        "results": [
            {"provider": each.provider, "title": each.title, "url": each.url, "score": each.score}
            | {"extra": {name: _plain(value) for name, value in each.extra.items()}}
            for each in finding.results
        ],
    }


def summary(result: ResearchResult) -> str:
    """One sentence about all of it."""
    asked, seconds = plural(len(result.providers), "provider"), format_seconds(result.seconds)
    if not result.findings:
        return f"Nothing found ({asked}, {seconds})."
    helped = sum(report.kept > 0 for report in result.providers)
    return f"{plural(len(result.findings), 'result')} from {helped} of {asked} in {seconds}."


def progress_line(reports: Iterable[ProviderReport]) -> str:
    return "  ".join(f"{MARKS[report.outcome]} {report.provider} {report.found}" for report in reports)


# ---------------------------------------------------------------------- a page


def as_page(fields: dict[str, Any], headline: str, plain: bool) -> str:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, force_terminal=False if plain else None)
    console.width = min(console.width, WIDEST) if console.is_terminal else WIDEST
    with console.capture() as page:
        console.print(Text(_line(fields["question"]), style="bold"))
        console.print(Text(headline), end="\n\n")
        for each in fields["findings"]:
            title = Text.assemble((f"{each['place']:>3}  ", "cyan"), (_line(each["title"]), "bold"))
            console.print(title, soft_wrap=True)
            console.print(Padding(Text(_line(each["url"]), style="blue", overflow="fold"), (0, 0, 0, 5)))
            if snippet := _shortened(each["snippet"]):
                console.print(Padding(Text(snippet), (0, 0, 0, 5)))
            console.print(Padding(Text(_about(each), style="dim"), (0, 0, 1, 5)))
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in COLUMNS:
            table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
        for report in fields["providers"]:
            name, outcome, *rest = _cells(report)
            table.add_row(Text(name), Text(outcome, style=COLOURS[report["outcome"]]), *map(Text, rest))
        console.print(table)
        for number, (name, why) in enumerate(reasons(fields["providers"])):
            console.print(Padding(Text.assemble((f"{name}: ", "bold"), why), (not number, 0, 0, 0)))
    return "\n".join(line.rstrip() for line in page.get().rstrip().splitlines())


COLUMNS = ("provider", "outcome", "found", "shown", "alone", "time", "circuit")
NUMBERS = ("found", "shown", "alone", "time")


def _cells(report: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        report["provider"],
        WORDS[report["outcome"]],
        str(report["found"]),
        str(report["kept"]),
        str(report["alone"]),
        format_seconds(report["seconds"]),
        report["breaker_state"].replace("_", " "),
    )


def reasons(reports: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Each provider whose results are incomplete, and why, as a sentence."""
    for report in reports:
        if told := _line(report["reason"]).rstrip("."):
            wait = report["retry_after"]
            when = f"; try again in {format_seconds(wait)}" if wait else ""
            where = '; "headgate keys" shows and frees them' if report["error_type"] == "no_credential" else ""
            yield report["provider"], f"{told}{when}{where}."


def _about(each: dict[str, Any]) -> str:
    """The providers that found it, at which place."""
    found = ", ".join(f"{name} {place}" for name, place in each["places"].items())
    return f"{each['published_at'][:4]} · {found}" if each["published_at"] else found


def _line(text: str) -> str:
    """One line without control characters."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def _shortened(text: str) -> str:
    line = _line(text)
    return line if len(line) <= LONGEST_SNIPPET else f"{line[:LONGEST_SNIPPET].rpartition(' ')[0]} ..."


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


# ---------------------------------------------------------------------- Markdown


def as_markdown(fields: dict[str, Any], headline: str) -> str:
    lines = [f"# {_escaped(fields['question'])}", "", headline, ""]
    for each in fields["findings"]:
        lines.append(f"{each['place']}. [{_escaped(each['title'])}](<{_address(each['url'])}>)  ")
        if snippet := _shortened(each["snippet"]):
            lines.append(f"   {_escaped(snippet)}  ")
        lines.append(f"   *{_escaped(_about(each))}*")
    lines += ["", "## Providers", "", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(_escaped(cell) for cell in _cells(report))} |" for report in fields["providers"]]
    whys = [f"- **{_escaped(name)}**: {_escaped(why)}" for name, why in reasons(fields["providers"])]
    return "\n".join(lines + [""] * bool(whys) + whys)


def _escaped(text: str) -> str:
    """The text as Markdown shows it: no markup, no HTML, no list at its beginning."""
    plain = re.sub(r"([\\`*_{}\[\]<>|#~$!])", r"\\\1", _line(text).replace("&", "&amp;"))
    return re.sub(r"^(\d{1,9})?([-+=.)])", r"\1\\\2", plain)


def _address(url: str) -> str:
    return re.sub(r"[<>\\\s]", lambda found: quote(found[0]), url)
