"""The adaptive controller: find the quota of a server that does not tell it, and hold it."""

from .controller import Adaptive
from .policy import AdaptivePolicy

__all__ = ["Adaptive", "AdaptivePolicy"]
