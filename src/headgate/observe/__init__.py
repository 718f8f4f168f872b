"""Observing runs: snapshots, events, metrics, reports, and why each thing waits.

    job, crawl, limiter ──> sources/ ──┐
                                       ├──> RunMonitor ──> web page, headgate watch, run registry, report/
    events ──> Hub ──> EventBuffer ────┘
                └────> exporters/ (logs, Prometheus, OpenTelemetry)

The names here are what programs use; each is loaded when it is first taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .exporters.logs import LogListener
    from .hub import Hub
    from .monitor import RunMonitor
    from .report import Notes, report_of, write_report
    from .run_registry import announced, machine_runs

__all__ = ["Hub", "LogListener", "Notes", "RunMonitor", "announced", "machine_runs", "report_of", "write_report"]

__getattr__ = lazy_names(
    __name__,
    {
        "exporters.logs": ("LogListener",),
        "hub": ("Hub",),
        "monitor": ("RunMonitor",),
        "report": ("Notes", "report_of", "write_report"),
        "run_registry": ("announced", "machine_runs"),
    },
)
