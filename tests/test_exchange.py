"""One request and its answer: sent once, bounded, told in our own words."""

import asyncio
import pickle

import aiohttp
import pytest

from headgate.core.decision import Outcome
from headgate.exchange import Answer, NoAnswerError, UnfitAnswerError, exchange, new_session


class Server:
    """Answers each connection with the same bytes and hangs up; counts requests."""

    def __init__(self, answer):
        self.answer, self.asked = answer, 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        writer.write(self.answer)
        writer.close()


def ask(answer, method="GET", session=new_session, **more):
    """What comes of it, and how often the server was asked."""
    settings = {"name": "it", "within": 5.0, "largest": 1000, **more}

    async def main():
        async with Server(answer) as server, session() as client:
            try:
                return await exchange(client, method, server.url, None, {}, **settings), server.asked
            except (NoAnswerError, UnfitAnswerError) as error:
                return error, server.asked

    return asyncio.run(main())


@pytest.mark.parametrize("session", [new_session, aiohttp.ClientSession], ids=["ours", "the caller's own"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_a_request_is_sent_once_though_the_server_hangs_up(session, method):
    error, asked = ask(b"", method, session)
    assert (str(error), asked) == ("it: closed the connection without an answer", 1)
    assert error.outcome is Outcome.TRANSIENT


@pytest.mark.parametrize(
    ("answer", "said", "outcome"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
            "closed the connection in the middle of its answer",
            Outcome.TRANSIENT,
        ),
        (b"not http at all\r\n\r\n", "did not answer with valid HTTP", Outcome.TRANSIENT),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + b"x" * 1001, "more than 1,000 bytes", Outcome.INVALID),
    ],
)
def test_what_goes_wrong_is_told_in_our_own_words(answer, said, outcome):
    error, _ = ask(answer)
    assert said in str(error)
    assert error.outcome is outcome
    assert error.__context__ is None


def test_an_address_that_is_none_is_nobodys_fault():
    async def main():
        async with new_session() as session:
            await exchange(session, "GET", "http://[::1/", None, {}, name="it", within=1.0, largest=10)

    with pytest.raises(UnfitAnswerError, match="was not called"):
        asyncio.run(main())


def test_a_secret_that_comes_back_is_hidden():
    secret = "sk-canary-0123456789"
    raw = f"HTTP/1.1 200 OK\r\nX-Key: {secret}\r\nContent-Length: {len(secret)}\r\n\r\n{secret}".encode()
    answer, _ = ask(raw, secrets=(secret,))
    assert secret not in repr(answer.headers) + answer.content.decode()


def test_an_answer_can_go_to_another_process():
    answer, _ = ask(b"HTTP/1.1 429 No\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{}")
    copy = pickle.loads(pickle.dumps(answer))
    assert isinstance(copy, Answer)
    assert (copy.status_code, copy.headers["Retry-After"], copy.content) == (429, "7", b"{}")
