"""Recordings of runs: written, read, decided once more, analysed, and simulated with other quotas."""
