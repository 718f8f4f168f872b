"""``headgate crawl`` as it is typed, against the small site of files over loopback."""

import json
import os
import signal
import threading
import time
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headgate.crawl import config as crawl_config

SITE = Path(__file__).parents[2] / "crawl" / "site"
PAGES = 8
FAST = ("--rate", "500/s", "--allow-private")


class Quietly(SimpleHTTPRequestHandler):
    """The files of a folder; ``slowly`` seconds for each page."""

    slowly = 0.0
    asked: Counter

    def do_GET(self):
        self.asked[self.path] += 1
        time.sleep(self.slowly if self.path.endswith((".html", "/")) else 0.0)
        if self.path == "/old-guide":
            self.send_response(301)
            self.send_header("Location", "/guide/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    kind = type("Site", (Quietly,), {"asked": Counter()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(kind, directory=str(SITE)))
    server.daemon_threads = True
    server.kind, server.url = kind, f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(crawl_config, "FIRST_RATE", 500.0)  # nothing to learn: a page a millisecond
    return tmp_path


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_site_into_a_file_with_the_reason_for_what_is_missing(headgate, site, here):
    said = headgate("crawl", site.url, "-o", "pages.jsonl", *FAST)
    assert said.code == 3  # one page is gone
    assert len(lines("pages.jsonl")) == PAGES
    about, last = said.out.splitlines()[-2:]
    assert about.startswith("8 pages, 1 failed (1 http_404), 2 refused; 12 requests in ")
    assert "Average per page: wait " in about
    assert last.startswith("pages.jsonl has 8 pages; 1 URL failed: ")
    assert last.endswith("missing.html (http_404: answered 404). Pass --failures FILE to list them all.")


def test_again_it_asks_for_nothing_and_says_the_same(headgate, site, here):
    headgate("crawl", site.url, "-o", "pages.jsonl", *FAST, "--exclude", "*missing*")
    asked = site.kind.asked.total()
    said = headgate("crawl", site.url, "-o", "pages.jsonl", *FAST, "--exclude", "*missing*")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "The crawl is complete: pages.jsonl has 8 pages."
    assert site.kind.asked.total() == asked


def test_a_private_address_is_refused_with_what_to_do_about_it(headgate, site, here):
    said = headgate("crawl", site.url, "-o", "pages.jsonl", "--quiet")
    assert said.code == 3
    assert "is at 127.0.0.1 (loopback), which is not allowed." in said.out
    assert "Pass --allow-private" in said.out
    assert site.kind.asked == {}


def test_failures_are_written_on_request(headgate, site, here):
    headgate("crawl", site.url, "-o", "pages.jsonl", *FAST, "--failures", "failures.jsonl", "--quiet")
    reasons = {one["url"].removeprefix(site.url): (one["state"], one["reason"]) for one in lines("failures.jsonl")}
    assert reasons == {
        "missing.html": ("failed", "http_404: answered 404"),
        "private/ledger.html": ("refused", "robots: robots.txt forbids it"),
        "guide/?print=1": ("refused", "robots: robots.txt forbids it"),
    }


def test_failures_are_written_beside_a_pipe_too(headgate, site, here):
    said = headgate("crawl", site.url, "-o", "-", *FAST, "--failures", "failures.jsonl", "--quiet")
    assert said.code == 3
    assert len(lines("failures.jsonl")) == 3
    assert "missing.html (http_404: answered 404). All of them are in failures.jsonl." in said.err


def test_in_a_pipe_too_it_says_why_no_page_came(headgate, site, here):
    said = headgate("crawl", site.url, "-o", "-", "--quiet")
    assert said.code == 3
    assert "Pass --allow-private" in said.err


def test_no_option_writes_over_the_pages(headgate, site, here):
    headgate("crawl", site.url, "-o", "pages.jsonl", *FAST)
    for option in ("--failures", "--trace", "--warc", "--seeds"):
        for path in ("pages.jsonl", "./pages.jsonl", "pages.jsonl.headgate"):
            said = headgate("crawl", site.url, "-o", "pages.jsonl", *FAST, option, path)
            assert said.code == 2
            assert f"{option} are the same file" in said.err
    assert len(lines("pages.jsonl")) == PAGES


def test_json_tells_of_the_end_with_the_waits_of_each_stage(headgate, site, here):
    said = headgate("crawl", site.url, "-o", "pages.jsonl", *FAST, "--json")
    end = json.loads(said.out.splitlines()[-1])
    assert (end["event"], end["exit_code"], end["pages"], end["refused"]) == ("end", 3, 8, 2)
    assert end["statuses"] == {"200": 10, "301": 1, "404": 1}
    assert set(end["stages"]) == {"extraction", "processing", "output"}
    assert end["stages"]["output"]["passed"] == 9


def test_standard_output_belongs_to_the_pages(headgate, site, here):
    said = headgate("crawl", site.url, "-o", "-", *FAST)
    assert len(said.out.splitlines()) == PAGES
    assert {json.loads(line)["title"] for line in said.out.splitlines()} >= {"Gates", "Tides"}
    assert "8 pages on standard output" in said.err


def test_as_many_pages_as_are_wanted_is_all_that_was_asked_for(headgate, site, here):
    said = headgate("crawl", site.url, "-o", "pages.jsonl", *FAST, "--max-pages", 2, "--quiet")
    assert said.code == 0
    assert said.out == "pages.jsonl has 2 pages, the limit of --max-pages; raise it to continue.\n"


def test_a_list_of_addresses_and_no_more(headgate, site, here):
    Path("urls.txt").write_text(f"# two of them\n{site.url}guide/gates.html\n\n{site.url}guide/tides.html\n")
    said = headgate("crawl", "--seeds", "urls.txt", "-o", "pages.jsonl", *FAST, "--depth", 0, "--no-sitemaps")
    assert said.code == 0
    assert sorted(line["title"] for line in lines("pages.jsonl")) == ["Gates", "Tides"]


def test_a_trace_has_every_call(headgate, site, here):
    headgate("crawl", site.url, "-o", "pages.jsonl", *FAST, "--trace", "trace.jsonl", "--quiet")
    calls = [line for line in lines("trace.jsonl") if "sent_at" in line]
    assert len(calls) == 12
    assert Counter(call["status"] for call in calls) == {200: 10, 301: 1, 404: 1}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "give at least one URL"),
        (["ftp://example.org/"], "URL 1 is not http or https"),
        (["http://example.org/", "--rate", "fast"], "'fast' is not a rate"),
        (["http://example.org/", "--max-size", "big"], "'big' is not a size"),
        (["http://example.org/", "--include", "re:("], "is not a valid regular expression"),
        (["--seeds", "nowhere.txt"], "cannot read nowhere.txt"),
    ],
)
def test_what_cannot_be_asked_for_is_a_usage_error(headgate, here, arguments, named):
    said = headgate("crawl", *arguments, "-o", "pages.jsonl")
    assert said.code == 2
    assert named in said.err
    assert not list(here.glob("pages*"))


def test_an_output_of_something_else_is_not_touched(headgate, site, here):
    Path("pages.jsonl").write_text("mine\n")
    said = headgate("crawl", site.url, "-o", "pages.jsonl", *FAST)
    assert said.code == 2
    assert Path("pages.jsonl").read_text() == "mine\n"
    assert site.kind.asked == {}


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_stops_and_the_same_command_goes_on(headgate, headgate_process, site, here, times):
    site.kind.slowly = 0.3
    command = ("crawl", site.url, "-o", "pages.jsonl", *FAST, "--exclude", "*missing*")
    process = headgate_process(*command)
    give_up_at = time.monotonic() + 60
    while site.kind.asked.total() < 3 and time.monotonic() < give_up_at:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    if times == 2:
        while "Stopping" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    last = out.splitlines()[-1]
    assert process.returncode == 4, (out, err)
    assert last.startswith("Stopped with ")
    assert last.endswith("Re-run to resume.")
    site.kind.slowly = 0.0
    again = headgate(*command)
    assert again.code == 0, again.err
    assert again.out.splitlines()[-1] == "The crawl is complete: pages.jsonl has 8 pages."
    assert Counter(line["url"] for line in lines("pages.jsonl")).most_common(1)[0][1] == 1


def test_the_time_that_is_up_is_no_failure(headgate, site, here):
    site.kind.slowly = 0.2
    said = headgate("crawl", site.url, "-o", "pages.jsonl", *FAST, "--deadline", "300ms", "--quiet")
    assert said.code == 4
    assert said.out == "The deadline has passed (after 300 ms). Re-run to resume.\n"


def test_a_terminal_shows_hosts_and_why_they_wait():
    from rich.console import Console

    from headgate.cli.commands.crawl_display import CrawlProgress
    from headgate.crawl.crawler import HostStatus
    from headgate.crawl.report import CrawlReport

    report = CrawlReport(pages=1284, before=16, open=2310, failed=3, refused=12, bytes=3_120_000, hosts=2)
    report.stages["extraction"].add(0.412, 0.083)
    hosts = [
        HostStatus(host="docs.example.org", rate=8.0, in_flight=1, waiting=15, opens_in=None, reason=""),
        HostStatus(
            host="sick.example", rate=0.5, in_flight=0, waiting=0, opens_in=12.0, reason="circuit open, 12 s to go"
        ),
    ]
    seen = CrawlProgress(report=report, rate=12.4, hosts=hosts, waits={"pace": 1, "shut": 1}, stopping=True)
    console = Console(width=100, force_terminal=True, color_system=None, record=True)
    with console.capture() as shown:
        console.print(seen.render(100, 40))
    text = shown.get()
    assert "1,300 pages  12.4/s  2,310 to go  2 hosts  3.1 MB  3 failed  12 refused" in text
    assert "average per page: wait 412 ms, fetch 83 ms" in text
    assert "circuit open, 12 s to go" in text
    assert "stopping: 1 call in flight" in text
    assert max(map(len, text.splitlines())) <= 100
    line = "1,300 pages, 12.4/s, 2,310 to go, 2 hosts, 3 failed, 12 refused; sick.example: circuit open, 12 s to go"
    assert seen.lines() == [line]
    assert seen.fields()[0]["hosts"][1] == {
        "host": "sick.example",
        "learned": 0.5,
        "in_flight": 0,
        "waiting": 0,
        "opens_in": 12.0,
        "reason": "circuit open, 12 s to go",
    }


def test_a_crawl_is_told_in_one_file_at_its_end(headgate, site, here):
    said = headgate("crawl", site.url, "-o", "pages.jsonl", *FAST, "--report", "crawl.html")
    assert said.code == 3
    report = (here / "crawl.html").read_text(encoding="utf-8")
    assert "8 pages" in report
    assert "http_404" in report
    assert "127.0.0.1" in report
    assert headgate("crawl", site.url, "-o", "same.html", "--report", "same.html").code == 2
