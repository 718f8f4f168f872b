"""The page: what a run does, learns and waits for, in a browser; and the same as JSON for machines.

``serve`` runs it beside a run, in a thread of its own; ``create_app`` is the ASGI app for a service of yours. Both need
``pip install 'headgate[web]'``, and importing this package says so where that is missing.
"""

from ..errors import HeadgateError
from ..wire.urls import LOOPBACK

__all__ = ["LOOPBACK", "NotServedError", "Served", "WebApp", "WebMissingError", "create_app", "new_token", "serve"]


class WebMissingError(HeadgateError, ImportError):
    """The page was asked for where its libraries are not installed."""

    def __init__(self) -> None:
        super().__init__("the page needs Starlette and uvicorn: pip install 'headgate[web]'.")


try:
    from .app import WebApp, create_app
    from .guard import new_token
    from .server import NotServedError, Served, serve
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
        raise
    raise WebMissingError from None
