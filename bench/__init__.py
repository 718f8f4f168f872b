"""Headgate beside its peers, measured in one run on the machine at hand.

``python -m bench`` prints two tables and writes ``bench/RESULTS.md``:

* what one operation costs (``costs``): every contender is timed once per round, the rounds
  interleave all of them, and only minima and ratios are judged;
* how limiters and breakers behave where it hurts (``behaviours``): every contender runs in a
  process of its own under a time limit, so that one which hangs costs seconds, not the run.

Absolute times do not carry over to other machines. Ratios within one run do, roughly.
"""
