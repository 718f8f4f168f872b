"""The controllers' table: every strategy against every scenario, judged by marks, in virtual time.

    python -m bench.lab            adaptive over 20 seeds, the published strategies over 3
    python -m bench.lab --full     everything over 20 seeds, and what size costs

    plan ──runs──> results ──> marks, rivals, unseen ──> misses ──> page ──> bench/controllers.md, bench/pictures/
                    │ ^
                    v └── bench/controllers.json: the figures of the committed table
                   worse than those? then the run fails

Simulated runs are the same to the byte wherever they are made: a figure that moved was moved by the code.
"""
