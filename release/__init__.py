"""Tests and tools of a release; `make release-check` runs them."""
