"""What the page's files promise without a browser: nothing inline, nobody else asked, colours that can be read."""

import re
from pathlib import Path

import pytest

import headgate
from headgate.batch.report import Remedy
from headgate.observe.event_buffer import ALARMING, ROUTINE

STATIC = Path(headgate.__file__).parent / "web" / "static"
OURS = sorted(path for path in STATIC.iterdir() if path.suffix in (".html", ".css", ".js"))
LEAST_CONTRAST = 4.5
PAIRS = [
    ("ink", "paper"), ("ink", "panel"), ("soft", "panel"), ("pale", "panel"), ("pale", "paper"), ("accent", "panel"),
    ("on-accent", "accent"), ("paper", "ink"), ("panel", "bad"),
    *((tone, f"{tone}-wash") for tone in ("good", "busy", "warn", "bad", "quiet")),
    *((tone, "panel") for tone in ("good", "busy", "warn", "bad", "quiet")),
]  # fmt: skip


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def scheme(name):
    light, dark = re.findall(r":root \{(.*?)\n *\}", (STATIC / "style.css").read_text("utf-8"), re.DOTALL)[:2]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light))
    return colours if name == "light" else colours | dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark))


@pytest.mark.parametrize("name", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_can_be_read(name, text, ground):
    colours = scheme(name)
    lighter, darker = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= LEAST_CONTRAST


def test_nothing_is_inline():
    html = (STATIC / "index.html").read_text("utf-8")
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", html) == []


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_no_other_host_is_named(path):
    assert re.findall(r"(?:https?:)?//[\w-]+\.\w+", path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_what_a_run_says_never_becomes_markup(path):
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function"
    assert re.findall(markup, path.read_text("utf-8")) == []


def test_the_vendored_chart_library_comes_with_its_licence():
    assert "MIT" in (STATIC / "vendor" / "uPlot.LICENSE.txt").read_text("utf-8")
    assert "uPlot (v1.6.32)" in (STATIC / "vendor" / "uPlot.iife.min.js").read_text("utf-8")[:300]


def test_the_page_knows_the_events_and_remedies_that_runs_report():
    events = (STATIC / "events.js").read_text("utf-8")
    listed = re.search(r"ROUTINE = new Set\(\[(.*?)\]\)", events, re.DOTALL)[1]
    assert set(re.findall(r'"(\w+)"', listed)) == ROUTINE
    assert set(re.findall(r'(\w+): "bad"', events)) >= ALARMING
    remedies = re.search(r"REMEDIES = \{(.*?)\n\};", (STATIC / "waits.js").read_text("utf-8"), re.DOTALL)[1]
    assert set(re.findall(r"(\w+): ", remedies)) == {remedy.value for remedy in Remedy}
