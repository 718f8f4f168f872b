"""Ctrl-C and garbage collection may strike at any moment; the limiter must go on."""

from __future__ import annotations

import ast
import asyncio
import dis
import gc
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

import pytest

import headgate
from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.fork_safety import run_locked
from headgate.limiter.wait_queue import QueuedCall, TotalDemand

STRUCK_AGAIN_AND_AGAIN = """
import signal
from headgate import AdaptiveRateLimiter, RateLimitConfig

class Struck(BaseException):
    pass

def strike(*_):
    raise Struck

limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=3000, token_bucket_capacity=2))
strikes = 0
limiter.acquire("api").report(status_code=200, latency=0.001)  # a slow machine may strike every other first call
signal.signal(signal.SIGALRM, strike)
for turn in range(1000):
    key = "api" if turn % 2 else f"new {turn}"
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003)
        for _ in range(200):  # an interrupt may be lost, in a destructor for instance
            limiter.acquire(key).report(status_code=200, latency=0.001)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Struck:
        strikes += 1
signal.signal(signal.SIGALRM, signal.SIG_IGN)
assert strikes > 100, strikes
assert limiter._lock.acquire(timeout=20), "the lock is held for ever"
limiter._lock.release()
assert not any(key.waiters for key in limiter.snapshot(1000).keys)
assert limiter.acquire("api", max_wait=20.0).waited < 20.0
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that interrupts")
def test_a_signal_at_any_moment_leaves_no_lock_held_and_nobody_in_line() -> None:
    """In a process of its own: what measures the tests must not be struck. Half a second of real time."""
    done = subprocess.run([sys.executable, "-c", STRUCK_AGAIN_AND_AGAIN], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.no_cover
def test_no_loop_repeats_outside_of_the_exception_table_of_a_lock() -> None:
    """CPython 3.12 and 3.13 leave some jumps back out of it: a signal that raises there leaves the lock held.

    A loop that ends in a condition is such a one: it goes into a function that the block calls.
    """
    package = Path(headgate.__file__).parent
    gaps = [f"{path.relative_to(package)}:{line}" for path in package.rglob("*.py") for line in uncovered_jumps(path)]
    assert gaps == []


@pytest.mark.no_cover
def test_a_lock_that_is_not_waited_for_without_end_is_taken_by_run_locked() -> None:
    """A signal that raises between ``acquire(timeout=...)`` and ``try`` leaves the lock held."""
    package = Path(headgate.__file__).parent
    calls = [
        f"{path.relative_to(package)}:{call.lineno}"
        for path in package.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "acquire"
        and re.search(r"(lock|store)\.acquire\(((blocking=)?False|timeout=.*)\)$", ast.unparse(call))
    ]
    assert calls == []


class Struck(BaseException):
    pass


def strike_after(code: CodeType, offset: int) -> Callable[[FrameType, str, object], object]:
    """A trace function that raises in place of the instruction at that offset."""

    def trace(frame: FrameType, event: str, _: object) -> object:
        frame.f_trace_opcodes = frame.f_code is code
        if event == "opcode" and frame.f_code is code and frame.f_lasti == offset:
            raise Struck
        return trace

    return trace


def interruptible(code: CodeType) -> list[int]:
    """The offsets before which signal handlers run: at the beginning, and after each call."""
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    return [step.offset for before, step in pairwise(steps) if before.opname.startswith(("RESUME", "CALL"))]


@pytest.mark.no_cover
@pytest.mark.parametrize("is_free", [True, False])
@pytest.mark.parametrize("act", [int, lambda: int("x")])
def test_a_signal_after_any_call_in_run_locked_leaves_the_lock_as_it_was(
    is_free: bool, act: Callable[[], object]
) -> None:
    code, lock, struck = run_locked.__code__, threading.Lock(), 0
    sys._getframe().f_trace_opcodes = True  # on 3.12 ``settrace`` looks whether any frame wants them
    for offset in interruptible(code):
        if not is_free:
            lock.acquire()
        before = sys.gettrace()
        sys.settrace(strike_after(code, offset))
        try:
            run_locked(lock, 0.0, act)
        except Struck:
            struck += 1
        except ValueError:
            pass
        finally:
            sys.settrace(before)
        assert lock.locked() is not is_free
        if not is_free:
            lock.release()
    assert struck >= 2


def uncovered_jumps(path: Path) -> Iterator[int]:
    text = path.read_text()
    blocks = [(block.lineno, block.end_lineno or 0) for block in ast.walk(ast.parse(text)) if takes_lock(block)]
    for code in codes(compile(text, path, "exec")) if blocks else ():
        table = dis._parse_exception_table(code)  # type: ignore[attr-defined]
        for step in dis.get_instructions(code):
            line = step.positions and step.positions.lineno
            if step.opname != "JUMP_BACKWARD" or not line or any(one.start <= step.offset < one.end for one in table):
                continue
            if any(code.co_firstlineno <= first < line <= last for first, last in blocks):
                yield line


def takes_lock(node: ast.AST) -> bool:
    return isinstance(node, ast.With) and any(
        re.search(r"(\b|_)lock$", ast.unparse(item.context_expr)) for item in node.items
    )


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from codes(one)


def test_a_block_that_is_collected_in_the_middle_of_a_decision_does_not_hang() -> None:
    """Real time: the half second after which the lock is no longer waited for."""
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=100))

    def block():  # type: ignore[no-untyped-def]
        with limiter.permit("api"):
            yield

    cycle = [block()]
    next(cycle[0])
    cycle.append(cycle)  # type: ignore[arg-type]
    del cycle
    now, collected = limiter._now, []

    def collecting() -> float:
        if not collected:
            collected.append(True)
            gc.collect()
        return now()

    limiter._now = collecting
    done = threading.Event()

    def work() -> None:
        limiter.acquire("api").report(status_code=200)
        done.set()

    threading.Thread(target=work, daemon=True).start()
    assert done.wait(60)
    assert limiter.snapshot().keys[0].in_flight == 0


def test_calls_interrupted_as_they_join_leave_a_queue_that_others_can_join(monkeypatch: pytest.MonkeyPatch) -> None:
    add = TotalDemand.add

    def strike(total: TotalDemand, call: QueuedCall, sign: int = 1) -> None:
        if sign > 0:  # a call joins; leaving is not interrupted
            raise Struck
        add(total, call, sign)

    async def main() -> int:
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=0.1, token_bucket_capacity=1))
        limiter.acquire("api")
        waiting = [asyncio.create_task(limiter.acquire_async("api"))]
        await asyncio.sleep(0)
        with monkeypatch.context() as patch:
            patch.setattr(TotalDemand, "add", strike)
            for _ in range(2):
                with pytest.raises(Struck):
                    limiter.acquire("api")
        waiting.append(asyncio.create_task(limiter.acquire_async("api")))
        await asyncio.sleep(0)
        waiters = limiter.snapshot().keys[0].waiters
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return waiters

    assert asyncio.run(main()) == 2


def test_waiters_of_loops_that_were_closed_harm_nobody() -> None:
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=200, token_bucket_capacity=1))
    limiter.acquire("api")
    loop = asyncio.new_event_loop()
    waiters = [loop.create_task(limiter.acquire_async("api", max_wait=60)) for _ in range(3)]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    limiter.acquire("api").report(status_code=429, retry_after=0.1)
    assert limiter.acquire("api", max_wait=20).waited < 20
    for waiter in waiters:
        waiter._log_destroy_pending = False  # type: ignore[attr-defined]
        waiter.get_coro().close()
