"""Headgate beside its peers, measured in one run on the machine at hand.

``python -m bench`` prints two tables and writes ``bench/RESULTS.md``:

* what one operation costs (``costs``): every contender is timed once per round, the rounds
  interleave all of them, and only minima and ratios are judged;
* how limiters and breakers behave in hard cases (``behaviours``): every contender runs in a
  process of its own under a time limit, so that one which hangs costs seconds, not the run.

Every other measurement is a command of its own (``python -m bench.batch``); its first line says what it measures.
``bench.lab`` compares controllers in virtual time. ``ports``, ``redis_server`` and ``delayed_store`` also serve tests.

Absolute times do not carry over to other machines. Ratios within one run do, roughly.
"""
