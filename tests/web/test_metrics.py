"""What Prometheus is told, by whom it is asked and how often."""

import sys

import pytest

parser = pytest.importorskip("prometheus_client.parser")


def test_a_scrape_is_read_by_the_parser_of_prometheus(page):
    answer = page.ask("GET /metrics", page.bearer)
    assert answer.status == 200
    assert answer.fields["content-type"].startswith("text/plain")
    assert list(parser.text_string_to_metric_families(answer.body.decode()))


def test_a_scrape_needs_the_token(page):
    assert page.ask("GET /metrics").status == 401


def test_many_scrapes_at_once_are_one_look(open_page):
    class Counting:
        asked = 0

        def text(self):
            self.asked += 1
            return b"# HELP x y\n"

    counting = Counting()
    page = open_page(metrics=counting)
    for _ in range(5):
        assert page.ask("GET /metrics", page.bearer).body == b"# HELP x y\n"
    assert counting.asked <= 2


def test_without_the_library_it_says_what_to_install(page, monkeypatch):
    monkeypatch.setitem(sys.modules, "headgate.observe.exporters.prometheus", None)
    answer = page.ask("GET /metrics", page.bearer)
    assert answer.status == 501
    assert b"headgate[metrics]" in answer.body
