"""Bodies of urllib3's answers: they tell when they end, and what was read of an error's is still there.

read, stream, data ──each piece──> the call       the end ─> over    an error ─> broke    close, release ─> left
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import urllib3

from .dropped import dropped
from .request_call import RequestCall


class GatedResponse(urllib3.HTTPResponse):
    """An answer that holds its permit until its body has ended, or nobody reads on."""

    _call: RequestCall
    _is_reading = False
    _is_over = False

    @classmethod
    def hold(cls, response: Any, call: RequestCall) -> None:
        """Make an answer that urllib3 has begun one of these. Of another kind it is not known when it ends."""
        if type(response) is urllib3.HTTPResponse:
            response._call = call  # type: ignore[attr-defined]
            response.__class__ = cls
            if response.closed:
                call.over()
        else:
            call.over()

    def read(self, amt: int | None = None, decode_content: bool | None = None, cache_content: bool = False) -> bytes:
        with self._watched():
            data = super().read(amt, decode_content, cache_content)
        self._take(data, is_last=amt is None or amt < 0 or (not data and amt > 0))
        return data

    def read1(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:
        with self._watched():
            data = super().read1(amt, decode_content)
        self._take(data, is_last=not data and amt != 0)
        return data

    def stream(self, amt: int | None = 2**16, decode_content: bool | None = None) -> Any:
        yield from super().stream(amt, decode_content)
        self._take(b"", is_last=amt != 0)

    def read_chunked(self, amt: int | None = None, decode_content: bool | None = None) -> Any:
        pieces = super().read_chunked(amt, decode_content)
        while True:
            with self._watched():
                piece = next(pieces, None)
            if piece is None:
                break
            self._take(piece)
            yield piece
        self._take(b"", is_last=True)

    def release_conn(self) -> None:
        has_ended = self.closed
        super().release_conn()
        self._leave(has_ended)

    def drain_conn(self) -> None:
        super().drain_conn()
        self._leave(True)

    def close(self) -> None:
        has_ended = self.closed
        super().close()
        self._leave(has_ended)

    def __del__(self) -> None:
        if not self._is_over:
            dropped.append(self._call)
        super().close()

    # ------------------------------------------------------------------ inside

    @contextmanager
    def _watched(self) -> Iterator[None]:
        outer, self._is_reading = self._is_reading, True
        try:
            yield
        except Exception as error:
            self._call.broke(error)
            raise
        finally:
            self._is_reading = outer

    def _take(self, data: bytes, *, is_last: bool = False) -> None:
        if self._is_reading:  # one way of reading uses another
            return
        self._call.piece(data)
        if is_last:
            self._is_over = True
            self._call.over()

    def _leave(self, has_ended: bool) -> None:
        if self._is_reading:  # urllib3 itself is done with the connection; the last piece is still to come
            return
        self._is_over = True
        if has_ended:
            self._call.over()
        else:
            self._call.left()


class _Rest:
    """A body of which the start was read: that again, and then what is left."""

    def __init__(self, start: bytes, response: Any) -> None:
        self._start, self._response = io.BytesIO(start), response
        self.closed = False

    def read(self, amt: int | None = None) -> bytes:
        start = self._start.read(amt)
        if amt is None:
            return start + bytes(self._response.read(decode_content=False))
        return start or bytes(self._response.read(amt, decode_content=False))

    read1 = read

    def close(self) -> None:
        self.closed = True
        self._response.close()
        self._response.release_conn()


def read_again(start: bytes, response: Any, method: str) -> urllib3.HTTPResponse:
    """The same answer, as if nothing had been read of it."""
    rest: Any = _Rest(start, response)
    return urllib3.HTTPResponse(
        body=rest,
        headers=response.headers,
        status=response.status,
        version=response.version,
        version_string=response.version_string,
        reason=response.reason,
        preload_content=False,
        decode_content=response.decode_content,
        original_response=response._original_response,
        request_method=method,
        request_url=response.url,
    )
