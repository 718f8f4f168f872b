"""Which keys have a name of their own in metrics: the busiest. All others are called ``other``.

Whoever keeps metrics pays for every value that a label has ever had, and keys come from outside: hosts, users, models.
So there are so many names and no more. A name is given to the first that come, and goes to another key only once that
one has been used twice as often: names that came and went with every look would be worth nothing.
"""

from __future__ import annotations

from hashlib import blake2b

MOST_NAMED = 100
MOST_CANDIDATES = 10_000
"""Keys without a name whose uses are counted; then the counting starts over."""
TIMES_AS_BUSY = 2
LONGEST_NAME = 200
OTHER = "other"


class Busiest:
    """Not safe for threads: whoever owns it has a lock."""

    def __init__(self, most: int = MOST_NAMED) -> None:
        self._most = most
        self._named: dict[str, list[int]] = {}
        """By key, how often it was used: a number that its owner may raise without asking for the name each time."""
        self._candidates: dict[str, int] = {}
        self._bar = 0
        """No key with fewer uses can get a name: that of the least busy is safe until then."""
        self.left: list[str] = []
        """Names that were given up since somebody last looked; that one clears it."""

    def name(self, key: str, uses: int | None = None) -> str:
        """What the key is called. ``uses`` is how often it was used so far; without it, this is one more use."""
        named = self._named
        count = named.get(key)
        if count is not None:
            count[0] = count[0] + 1 if uses is None else uses
            return key
        if len(named) < self._most and key != OTHER:
            named[key] = [1 if uses is None else uses]
            return key
        if len(self._candidates) >= MOST_CANDIDATES:
            self._candidates.clear()
        total = self._candidates[key] = self._candidates.get(key, 0) + 1 if uses is None else uses
        if total < self._bar or key == OTHER:
            return OTHER
        least = min(named, key=named.__getitem__)
        self._bar = max(1, TIMES_AS_BUSY * named[least][0])
        if total < self._bar:
            return OTHER
        del named[least], self._candidates[key]
        named[key] = [total]
        self.left.append(least)
        return key

    def uses(self, key: str) -> list[int]:
        """How often a key that has a name was used; raise it with each use. That of others is nowhere."""
        return self._named.get(key) or [0]


def readable(key: str) -> str:
    """A key as a label's value: bounded, nothing in it that cannot be written, and two keys are never one."""
    value = key[:LONGEST_NAME].encode("utf-8", "replace").decode()
    return (
        value if value == key else f"{value}~{blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"
    )
