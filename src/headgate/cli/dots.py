"""Plot curves in a terminal with braille dots: eight to a character, so a small window shows much.

⢀⡠⠤⠤⠤⢄        each character is 2 dots wide and 4 high
⡰⠁    ⠈⢆
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_DOT_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_EMPTY = 0x2800


class DotCanvas:
    """``columns`` by ``rows`` characters; the curve drawn last owns the colour of a shared character."""

    def __init__(self, columns: int, rows: int) -> None:
        self.width, self.height = 2 * columns, 4 * rows
        self._bits = [[0] * columns for _ in range(rows)]
        self._styles = [[""] * columns for _ in range(rows)]

    def dot(self, x: int, y: int, style: str) -> None:
        """Set the dot ``x`` from the left and ``y`` from the bottom; outside the canvas nothing happens."""
        if 0 <= x < self.width and 0 <= y < self.height:
            row, column = (self.height - 1 - y) // 4, x // 2
            self._bits[row][column] |= _DOT_BITS[(self.height - 1 - y) % 4][x % 2]
            self._styles[row][column] = style

    def curve(self, heights: Sequence[float | None], style: str, *, every: int = 1) -> None:
        """Draw one height (0 to 1) per dot column, joined up; ``None`` leaves a gap, ``every`` thins it to dashes."""
        before: int | None = None
        for x, height in enumerate(heights[: self.width]):
            if height is None:
                before = None
                continue
            y = round(min(max(height, 0.0), 1.0) * (self.height - 1))
            low, high = (y, y) if before is None else (min(y, before), max(y, before))
            if x % every == 0 or high > low:
                for level in range(low, high + 1):
                    self.dot(x, level, style)
            before = y

    def rows(self) -> Iterable[list[tuple[str, str]]]:
        """Each row from the top as (character, style) pairs."""
        for bits, styles in zip(self._bits, self._styles, strict=True):
            yield [(chr(_EMPTY + bit) if bit else " ", style) for bit, style in zip(bits, styles, strict=True)]
