"""The lab: the real limiter, and strategies beside it, against simulated servers in virtual time.

    scenario (TOML) ──> simulated_server      quotas, queue, outages, headers; pure
                          ^ │ answers after service time and network delay (traffic)
                          │ v
    clients: the limiter, or a strategy behind on_send / on_response (adapters, baselines/)
                          │
    measures ──> comparison ──> charts/

``traces/`` records real runs, decides them once more, and simulates them with other quotas. ``plug`` and
``plug_shared`` drive the real gate from a simulator of your own.
"""

from .adapters import plug, plug_shared

__all__ = ["plug", "plug_shared"]
