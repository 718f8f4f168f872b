"""Where there is little room: names that differ stay apart, and why a call would wait can be read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console
from tests.web.browser.conftest import browser, new_page, serve_page  # noqa: F401  # fixtures
from tests.web.lively import Lively

from headgate.cli.ui.display import cut_apart
from headgate.cli.ui.run_page import ENDLESS, RunsFrame, RunView

LONG = "paced at 86.7 calls/s, following the server's headers, 103 ms to go"


@pytest.mark.parametrize("width", [40, 80, 100, 140])
def test_two_keys_of_one_long_beginning_are_told_apart(width):
    seen = Lively(keys=2).snapshot()
    names = [f"api.openai.com/gpt-4o-mini-2024-07-18 zone-{letter}" for letter in "ab"]
    keys = [replace(seen.keys[0], key=name) for name in names]
    console = Console(width=width)
    with console.capture() as capture:
        view = RunView(replace(seen, keys=tuple(keys), waits=()))
        console.print(RunsFrame([view], [], [], is_over=False).render(width, ENDLESS))
    assert [sum(f"zone-{letter}" in line for line in capture.get().splitlines()) for letter in "ab"] == [1, 1]


@pytest.mark.parametrize(
    "names", [["ab" * 20 + "x" + "c" * 40, "ab" * 20 + "y" + "c" * 40], ["a" * 50, "a" * 51], ["k"]]
)
def test_names_that_differ_are_never_cut_alike(names):
    cut = cut_apart(names, 20, 78)
    assert len(set(cut)) == len(names)
    assert max(map(len, cut)) <= 78


def test_why_a_call_would_wait_fits_at_1280_pixels(new_page, serve_page):  # noqa: F811
    class Paced(Lively):
        def snapshot(self):
            seen = super().snapshot()
            return replace(seen, keys=tuple(replace(line, reason=LONG) for line in seen.keys))

    page = new_page(serve_page(Paced(keys=5)).url, viewport={"width": 1280, "height": 900})
    page.wait_for_selector(f'#keys-body td[title="{LONG}"]')
    cells = page.evaluate(
        "[...document.querySelectorAll('#keys-body td[data-column=reason] > div')]"
        ".map(cell => [cell.scrollHeight <= cell.clientHeight, cell.getBoundingClientRect().right <= innerWidth])"
    )
    assert cells
    assert all(all(fits) for fits in cells)
