"""The colours of every picture, one meaning each.

Blue against orange stays apart for all common kinds of colour blindness; where two
colours might not, the marks also differ in shape, brightness or place.
"""

from __future__ import annotations

from .drawing import INK as INK

PALE, GRID = "#64707d", "#e6e9ed"
LEARNED, QUOTA = "#1668c7", "#e08700"
CALLS = "#cfe0f5"
REFUSED = "#d1242f"
OUTAGE = "#f7d9d9"
BREAKER = "#8250df"
WAITING, IN_FLIGHT = "#c9ced6", "#0b6e69"
