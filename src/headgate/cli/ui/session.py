"""Run a command's work to its end: on the fastest event loop, with a display, stopped by Ctrl-C.

Ctrl-C (or SIGTERM)   once     stop(now=False): finish what is in flight
                      twice    stop(now=True): cancel it
                      thrice   the process ends at once
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from ...checks import check_token
from ...errors import ConfigError
from ...wire.urls import is_loopback

if TYPE_CHECKING:
    from .display import Display, Frame

STOPPING = "Stopping after the calls in flight. Press Ctrl-C again to stop now."
IGNORED_AFTER_END = 2.0
"""Seconds."""

T = TypeVar("T")


class Stop(Protocol):
    def __call__(self, *, now: bool) -> None: ...


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run``, on uvloop where it is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = None  # type: ignore[assignment]
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


async def run_to_end(
    work: Coroutine[Any, Any, T],
    display: Display,
    sample: Callable[[], Frame | None],
    stop: Stop,
    *,
    sample_every: float | None = None,
    show_last: bool = False,
) -> asyncio.Task[T]:
    """Show frames until ``work`` has ended; returns its task, whose result may raise.

    ``sample_every``: seconds, where a frame is wanted more often than the display shows one. ``show_last``: show the
    frame of the end too.
    """

    def on_interrupt(count: int) -> None:
        if count == 1:
            display.say(STOPPING)
        stop(now=count > 1)

    with on_interrupts(on_interrupt):
        task = asyncio.create_task(work)
        every = display.every if sample_every is None else min(sample_every, display.every)
        show_at = time.monotonic() + display.every
        try:
            with display:
                while not task.done():
                    await asyncio.wait([task], timeout=every)
                    if task.done() and not show_last:
                        break
                    frame, now = sample(), time.monotonic()
                    if frame is not None and (task.done() or now >= show_at):
                        display.show(frame)
                        show_at = now + display.every - every / 2
        finally:
            if not task.done():
                stop(now=True)
                await asyncio.wait([task])
    return task


@contextmanager
def on_interrupts(interrupted: Callable[[int], None]) -> Iterator[None]:
    """Call ``interrupted`` with the count of Ctrl-C and SIGTERM so far; the third ends the process."""
    loop, count = asyncio.get_running_loop(), 0
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def handle() -> None:
        nonlocal count
        count += 1
        if count >= 3:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        interrupted(count)

    for number in signals:
        try:
            loop.add_signal_handler(number, handle)
        except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
            try:
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(handle))
            except ValueError:
                before.pop(number)
    try:
        yield
    finally:
        for number, handler in before.items():
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that the terminal is left as it was."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def ignore_late_interrupts() -> None:
    """Ignore a Ctrl-C between the end of the work and the end of the process: it must not replace the exit code.

    Python would die of one even while it shuts down. A process that lives on is interrupted as usual after a moment.
    """
    until = time.monotonic() + IGNORED_AFTER_END

    def handle(*_: object) -> None:
        if time.monotonic() > until:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.raise_signal(signal.SIGINT)

    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, handle)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def access_token(host: str, variable: str) -> str | None:
    """The token of this environment variable; raises ``UsageError`` if ``host`` needs one and there is none."""
    token = os.environ.get(variable) or None
    try:
        check_token(token)
    except ConfigError as error:
        raise click.UsageError(f"{variable}: {error}.") from None
    if token is None and not is_loopback(host):
        make = f"{variable}=$(openssl rand -hex 24)"
        raise click.UsageError(f"{host} is reachable from other machines; set a token, such as {make}.")
    return token


def cannot_listen(error: OSError | UnicodeError, host: str, port: int) -> str:
    """Why a server cannot listen there, and which option would help."""
    if isinstance(error, UnicodeError | socket.gaierror):
        return f"cannot listen on {host}: the name cannot be resolved; choose another --host."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {host}: not an address of this machine; choose another --host."
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is already in use; choose another --port, or 0."
    detail = os.strerror(error.errno) if error.errno else str(error)
    return f"cannot listen on {host}:{port} ({detail}); choose another --port, or 0."
