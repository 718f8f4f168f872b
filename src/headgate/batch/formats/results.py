"""The lines of an output, as OpenAI's batch API writes them.

    {"id": "batch_req_...", "custom_id": "...", "response": {"status_code", "request_id", "body"}, "error": null}
    {"id": "batch_req_...", "custom_id": "...", "response": null, "error": {"code", "message"}}

An answer that is an error is still an answer: ``error`` is for rows that never had one. The body is
the server's own bytes, not ours: no number is rounded and no key reordered on the way.
"""

from __future__ import annotations

import hashlib
import json
import re

_quoted = json.encoder.encode_basestring_ascii
"""A text as JSON has it, without asking first what it is."""
_LINE_BREAKS = re.compile(rb"[\r\n][ \t\r\n]*")


def row_id(index: int, digest: bytes) -> str:
    """The same for the same row, whenever it is asked for."""
    return "batch_req_" + hashlib.blake2b(b"%d:%b" % (index, digest), digest_size=12).hexdigest()


def answer_line(row_id: str, name: str, status_code: int, request_id: str, body: bytes) -> bytes:
    """``body`` must be JSON; it may be written over several lines."""
    front = (
        f'{{"id": {_quoted(row_id)}, "custom_id": {_quoted(name)}, "response": '
        f'{{"status_code": {status_code}, "request_id": {_quoted(request_id)}, "body": '
    )
    return b'%b%b}, "error": null}\n' % (front.encode(), on_one_line(body))


def error_line(row_id: str, name: str, code: str, message: str) -> bytes:
    """``code`` is a word for programs, ``message`` a sentence for people."""
    return b'{"id": %b, "custom_id": %b, "response": null, "error": {"code": %b, "message": %b}}\n' % (
        _text(row_id),
        _text(name),
        _text(code),
        _text(message),
    )


def dead_line(row_id: str, name: str, reason: str) -> bytes:
    """Of a row that had no answer, by its reason in the ledger: a category, a colon and a sentence."""
    category, _, sentence = reason.partition(":")
    return error_line(row_id, name, category.strip(), sentence.strip() or category.strip())


def on_one_line(body: bytes) -> bytes:
    """JSON without line breaks: they may stand between its parts only, never inside of a text."""
    body = body.strip()
    return _LINE_BREAKS.sub(b"", body) if b"\n" in body or b"\r" in body else body


def _text(value: str) -> bytes:
    return _quoted(value).encode()
