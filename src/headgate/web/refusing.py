"""How a request is refused: a status and a sentence that repeats nothing of what was asked."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response


class RefusedError(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        self.status = status
        self.sentence = sentence
        super().__init__(sentence)


def refuse(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status)
