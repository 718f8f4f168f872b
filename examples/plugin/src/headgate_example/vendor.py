"""A vendor: where its API is, and the two headers in which it states its limit.

X-Example-Left: 3        calls left in this minute
X-Example-Next: 12       seconds until the minute is over
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.batch.endpoints import Endpoint, Vendor
from headgate.core.signal import Limit
from headgate.wire.dialect import Dialect
from headgate.wire.retry_after import Arrival

LEFT, NEXT = "x-example-left", "x-example-next"
MINUTE = 60.0


def read_limits(values: Mapping[str, str], arrival: Arrival) -> list[Limit]:
    left, seconds = values.get(LEFT, ""), values.get(NEXT, "")
    if not left.isdecimal() or not seconds.isdecimal():
        return []
    return [Limit(dimension="requests", limit=None, remaining=int(left), reset=float(seconds), window=MINUTE)]


VENDOR = Vendor(
    endpoint=Endpoint(name="example", base_url="https://api.example.com/v1", key_variable="EXAMPLE_API_KEY"),
    dialect=Dialect(
        name="example",
        title="Example",
        hosts=("api.example.com",),
        marks={LEFT: True, NEXT: True},
        read_limits=read_limits,
    ),
)
