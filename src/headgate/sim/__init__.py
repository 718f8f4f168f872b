"""Servers to practise on: quotas, a mock API that enforces them, and pictures of what happened."""
