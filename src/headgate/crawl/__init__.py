"""A polite crawler on the same gate."""
