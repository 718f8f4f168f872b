"""The adaptive controller: find the quota of a server that does not tell it, and hold it."""

from .controller import Adaptive, AdaptivePolicy, factory

__all__ = ["Adaptive", "AdaptivePolicy", "factory"]
