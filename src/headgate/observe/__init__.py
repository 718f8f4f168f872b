"""Seeing it: what happens, what is learned, and why each thing waits; for people, pages, logs and metrics."""
