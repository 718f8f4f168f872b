"""The recipes for Celery, in examples/ and in docs/, under 429s and an outage: no error body is a task's result.

A stand-in for Celery runs the tasks in order, in virtual time, and gives those back that retry; the site is a real one
on loopback. Celery's own workers run the example in ``make chaos``.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import httpx2
import pytest
from tests.integrations.logged_site import Site

from headgate import Refused
from headgate.integrations.httpx2 import GatedTransport
from headgate.lab.virtual_time import VirtualClock

ROOT = Path(__file__).parents[2]
TASKS = 30
IN_PLACE = 1.0
"""Seconds that a worker may wait, as both recipes say."""


class Retry(Exception):
    def __init__(self, countdown, exc):
        self.countdown, self.exc = countdown, exc


class Task:
    """What a bound task is called with."""

    def __init__(self, func, max_retries):
        self.func, self.max_retries = func, max_retries

    def retry(self, *, countdown, exc):
        return Retry(countdown, exc)


class Broker:
    """Runs tasks by the time they are due, one at a time; a result, or what a task failed with."""

    def __init__(self, clock):
        self.clock, self.results, self.put_off = clock, {}, 0

    def run(self, task, questions):
        due = [(self.clock.now(), number, question, 0) for number, question in enumerate(questions)]
        while due:
            due.sort()
            at, number, question, retries = due.pop(0)
            self.clock.sleep(max(0.0, at - self.clock.now()))
            try:
                self.results[question] = task.func(task, question)
            except Retry as retry:
                self.put_off += 1
                if retries >= task.max_retries:
                    self.results[question] = retry.exc
                else:
                    due.append((self.clock.now() + retry.countdown, number, question, retries + 1))
            except Exception as error:
                self.results[question] = error
        return self.results


@pytest.fixture
def celery(monkeypatch):
    module = ModuleType("celery")

    class Celery:
        conf = SimpleNamespace()

        def __init__(self, *_, **__):
            pass

        def task(self, func=None, *, bind=False, max_retries=3):
            return func if func is not None else lambda func: Task(func, max_retries)

    module.Celery, module.Task = Celery, Task
    monkeypatch.setitem(sys.modules, "celery", module)
    return module


def of_example(celery, url, client, monkeypatch):
    monkeypatch.setenv("BROKER", "redis://nowhere")
    monkeypatch.setenv("API", url)
    spec = importlib.util.spec_from_file_location("celery_tasks", ROOT / "examples" / "celery_tasks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.client = lambda: client
    return module.ask


def of_docs(celery, url, client, monkeypatch):
    text = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
    block = re.findall(r"```python\n(.*?)```", text.partition("## Celery and Ray\n")[2], re.DOTALL)[0]
    _, _, task = block.replace("https://api.example.com", url).partition("\n\n\n")
    names = {"app": celery.Celery(), "httpx2": httpx2, "Refused": Refused, "client": lambda: client}
    exec(compile(task, "frameworks.md", "exec"), names)
    return names["ask"]


@pytest.fixture(params=[of_example, of_docs])
def answers(request, celery, monkeypatch):
    """``answers(answer)``: what became of the tasks, with a site that answers so at a time."""

    def run(answer):
        clock = VirtualClock()
        broker = Broker(clock)
        with (
            Site(lambda site, host, path, headers: answer(clock.now(), site, path)) as site,
            httpx2.Client(transport=GatedTransport(max_wait=IN_PLACE, clock=clock)) as client,
        ):
            task = request.param(celery, site.url()[:-1], client, monkeypatch)
            results = broker.run(task, [f"question-{number}" for number in range(TASKS)])
        good = [one for one in site.log if one.status == 200]
        return results, len(good), broker

    return run


def is_answer(result):
    return result in (200, {"fine": True})


FINE = (200, {}, '{"fine": true}')


def test_429s_beyond_the_wait_put_tasks_off_and_are_no_results(answers):
    refusal = 429, {"Retry-After": "60"}
    results, good, broker = answers(lambda now, site, path: refusal if len(site.log) == 5 else FINE)
    assert [question for question, result in results.items() if not is_answer(result)] == []
    assert good == len(results) == TASKS
    assert broker.put_off >= 1
    assert broker.clock.now() >= 60.0


@pytest.mark.parametrize("status", [502, 503])
def test_an_outage_puts_tasks_off_and_is_no_result(answers, status):
    results, good, broker = answers(lambda now, site, path: (status,) if 1.0 <= now < 41.0 else FINE)
    assert [question for question, result in results.items() if not is_answer(result)] == []
    assert good == len(results) == TASKS
    assert broker.clock.now() >= 41.0


@pytest.mark.parametrize("status", [400, 404, 500])
def test_any_other_error_is_the_tasks_failure(answers, status):
    results, good, _ = answers(lambda now, site, path: (status,) if path.endswith("question-7") else FINE)
    wrong = {question: result for question, result in results.items() if not is_answer(result)}
    assert set(wrong) == {"question-7"}
    assert wrong["question-7"].response.status_code == status
    assert good == TASKS - 1
