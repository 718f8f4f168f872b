"""``AdaptiveRateLimiter`` and what it hands out."""

from .limiter import AdaptiveRateLimiter, PermitContext
from .permit import Feedback, Permit
from .snapshot import KeySnapshot, LimiterSnapshot

__all__ = ["AdaptiveRateLimiter", "Feedback", "KeySnapshot", "LimiterSnapshot", "Permit", "PermitContext"]
