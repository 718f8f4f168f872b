"""``AdaptiveRateLimiter`` and what it hands out."""

from .limiter import AdaptiveRateLimiter
from .permit import Feedback, Permit, PermitContext
from .snapshot import KeySnapshot, LimiterSnapshot

__all__ = ["AdaptiveRateLimiter", "Feedback", "KeySnapshot", "LimiterSnapshot", "Permit", "PermitContext"]
