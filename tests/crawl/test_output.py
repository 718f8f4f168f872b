"""What a page looks like in the output."""

import json
import zlib
from io import BytesIO

import pytest
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from headgate.crawl.fetch.response import FetchResponse
from headgate.crawl.output import JsonlOutput, Page, Result, WarcOutput, line_of

URL = "https://a.example/dir/page?x=1"


def page(**fields):
    return Page(**{"url": URL, "final_url": URL, "status": 200, "fetched_at": 1_800_000_000.25, "depth": 2, **fields})


SENT = {"Content-Type": "text/html", "Content-Encoding": "gzip", "Content-Length": "11"}


def response(body=b"<p>hello</p>", headers=SENT):
    return FetchResponse(
        url=URL, status=200, headers=headers, body=body, content_type="text/html", latency=0.1, took=0.2
    )


class TestLines:
    def test_all_that_is_known_about_a_page(self):
        whole = page(
            title="Title",
            text="Text",
            links=("https://a.example/2",),
            content_type="text/html",
            metadata={"language": "en"},
            found_on="https://a.example/",
            wait=1.23456,
            fetch=0.5,
            attempts=2,
        )
        assert json.loads(JsonlOutput("pages.jsonl").record(Result(whole))) == {
            "url": URL,
            "final_url": URL,
            "status": 200,
            "fetched_at": "2027-01-15T08:00:00.250Z",
            "depth": 2,
            "content_type": "text/html",
            "title": "Title",
            "text": "Text",
            "links": ["https://a.example/2"],
            "metadata": {"language": "en"},
            "found_on": "https://a.example/",
            "wait": 1.235,
            "fetch": 0.5,
            "attempts": 2,
        }

    @pytest.mark.parametrize("text", ["a\nb\r\nc", "a\u2028b\u2029c\x85d", "größe 漢字 🎈", '"quoted" \\ back', "\0"])
    def test_any_text_is_one_line_and_comes_back_as_it_was(self, text):
        line = line_of(page(text=text))
        assert len(line.decode().splitlines()) == 1
        assert line.endswith(b"\n")
        assert json.loads(line)["text"] == text

    def test_half_a_character_becomes_a_question_mark(self):
        assert json.loads(line_of(page(text="a\ud800b")))["text"] == "a?b"

    def test_a_number_that_json_does_not_know_is_refused(self):
        with pytest.raises(ValueError):
            line_of(page(metadata={"score": float("nan")}))


def records(output, *results):
    data = output.head() + b"".join(output.record(result) for result in results)
    return [(record, record.content_stream().read()) for record in ArchiveIterator(BytesIO(data))]


def members(data):
    """The pieces of a packed file."""
    while data:
        piece = zlib.decompressobj(wbits=31)
        yield piece.decompress(data)
        data = piece.unused_data


class TestArchives:
    @pytest.mark.parametrize("name", ["pages.warc", "pages.warc.gz"])
    def test_request_and_response_follow_the_record_that_says_who_wrote_it(self, name):
        output = WarcOutput(name, description="a crawl", agent="headgate (+https://x.example)")
        (info, about), (answer, body), (request, _) = records(output, Result(page(), response()))
        assert (info.rec_type, answer.rec_type, request.rec_type) == ("warcinfo", "response", "request")
        assert b"software: headgate/" in about
        assert b"description: a crawl" in about
        assert answer.rec_headers.get_header("WARC-Target-URI") == URL
        assert answer.rec_headers.get_header("WARC-Date") == "2027-01-15T08:00:00.250Z"
        assert body == b"<p>hello</p>"
        response_id = answer.rec_headers.get_header("WARC-Record-ID")
        assert request.rec_headers.get_header("WARC-Concurrent-To") == response_id
        assert request.http_headers.statusline == "/dir/page?x=1 HTTP/1.1"
        assert request.http_headers.protocol == "GET"
        sent = [("User-Agent", "headgate (+https://x.example)"), ("Host", "a.example")]
        assert request.http_headers.headers == sent, "nothing that could hold a secret"

    def test_headers_that_are_no_longer_true_are_renamed(self):
        _, (answer, _), _ = records(WarcOutput("x.warc"), Result(page(), response()))
        headers = answer.http_headers
        assert headers.get_header("Content-Encoding") is None
        assert headers.get_header("X-Crawler-Content-Encoding") == "gzip"
        assert headers.get_header("Content-Length") == "12"
        assert headers.get_header("Content-Type") == "text/html"

    def test_a_header_cannot_become_two(self):
        broken = response(headers={"X-A": "one\r\nX-B: two"})
        _, (answer, _), _ = records(WarcOutput("x.warc"), Result(page(), broken))
        assert answer.http_headers.get_header("X-B") is None
        assert answer.http_headers.get_header("X-A") == "one X-B: two"

    def test_digests_are_right_and_each_record_is_packed_by_itself(self, tmp_path):
        output = WarcOutput(tmp_path / "x.warc.gz")
        data = output.head() + b"".join(output.record(Result(page(), response(b"%d" % n))) for n in range(5))
        (tmp_path / "x.warc.gz").write_bytes(data)
        checker = Checker(type("Arguments", (), {"inputs": [str(tmp_path / "x.warc.gz")], "verbose": False})())
        checker.process_all()
        assert checker.exit_value == 0
        assert [piece.count(b"WARC/1.1\r\n") for piece in members(data)] == [1] * 11
