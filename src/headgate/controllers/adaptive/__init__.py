"""The adaptive controller: find the quota of a server that does not tell it, and hold it."""

from .controller import Adaptive, AdaptiveSettings, factory

__all__ = ["Adaptive", "AdaptiveSettings", "factory"]
