"""Rate controllers: one protocol, and the strategies behind it."""
