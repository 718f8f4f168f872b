"""The caller's end of a connection: told to go on sending, or cut off so that it shows."""

from __future__ import annotations

import socket
import struct

import aiohttp
from aiohttp import web

from .answering import TurnedAwayError


class CutOffError(ConnectionResetError):
    """The answer cannot be finished; the caller's connection ends in the middle of it."""


def cut(request: web.BaseRequest) -> None:
    """End the caller's connection so that he cannot take what he has for all of it."""
    transport = request.transport
    if transport is None:
        return
    if request.version < aiohttp.HttpVersion11:  # there, an end is how a body without a length is over
        own = transport.get_extra_info("socket")
        if own is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()


async def expected(request: web.BaseRequest) -> None:
    if request.headers["Expect"].lower() != "100-continue":
        raise TurnedAwayError(417, "unknown_expectation", "only 100-continue can be expected")
    if request.version >= aiohttp.HttpVersion11 and request.body_exists:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # what comes next is the first of the answer
