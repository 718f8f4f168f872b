"""Write a drawing to a file in the form its name asks for."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from itertools import cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from ...errors import ConfigError, HeadgateError
from .drawing import BOLD, Box, Drawing, Line, Mark, Point, Words

if TYPE_CHECKING:
    from PIL import ImageDraw


# -- write a drawing as SVG
# By hand: a plotting library would be the largest dependency of the project, for a
# handful of strokes.

FONTS = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, DejaVu Sans, sans-serif"
STYLE = f'font-family="{FONTS}" fill="none" stroke-linejoin="round"'


def to_svg(drawing: Drawing) -> str:
    """The same drawing gives the same text."""
    size = f'viewBox="0 0 {drawing.width} {drawing.height}" width="{drawing.width}" height="{drawing.height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {STYLE} role="img">',
            f"<title>{escape(drawing.title)}</title>",
            f'<rect width="{drawing.width}" height="{drawing.height}" fill="{drawing.background}"/>',
            *map(element, drawing.marks),
            "</svg>",
            "",
        ]
    )


def element(mark: Mark) -> str:
    match mark:
        case Line(points, colour, width, dash):
            way = "L".join(f"{x:.1f} {y:.1f}" for x, y in points) or "0 0"  # nowhere to go: nothing is drawn
            dashes = f' stroke-dasharray="{dash[0]:g} {dash[1]:g}"' if dash else ""
            return f'<path d="M{way}" stroke="{colour}" stroke-width="{width:g}"{dashes}/>'
        case Box(x, y, width, height, colour):
            return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
        case Words(x, y, text, size, colour, anchor, weight):
            where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
            return f'<text {where} font-size="{size}" font-weight="{weight}" fill="{colour}">{escape(text)}</text>'


# -- write a drawing as PNG, for chats and pages that show no SVG
# Pillow does the painting and brings the font with it, so that a picture looks the same
# on every machine. It paints without soft edges; a page three times as fine, averaged
# down at the end, has them.

SHARPNESS = 2
"""Pixels for one unit of the drawing: sharp on the screens of today."""
FINENESS = 3
"""Painted dots, each way, that become one pixel."""
DOTS = SHARPNESS * FINENESS
BOLDNESS = 1 / 60
"""Bold letters are fattened by this share of their size: the font has no bold face."""
SOLID = (math.inf, 0.0)
ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}
FONT_HAS = frozenset("·…°±©™«»‹›‘’“”")
"""Beside plain ASCII."""
SPELLED = str.maketrans({"×": "x", "–": "-", "—": "-", "−": "-", "→": "->", "≤": "<=", "≥": ">=", "µ": "u", "ß": "ss"})
"""How to write what the font has no letter for."""


class PillowMissingError(HeadgateError, ImportError):
    """A PNG was asked for where Pillow is not installed."""

    def __init__(self) -> None:
        super().__init__("a PNG needs Pillow: pip install 'headgate[png]', or end the name with .svg.")


def check_pillow() -> None:
    """Raise ``PillowMissingError`` now rather than at the end of a long run."""
    try:
        from PIL import ImageFont

        ImageFont.load_default(12)
    except ImportError:
        raise PillowMissingError from None


def to_png(drawing: Drawing) -> bytes:
    """The same drawing and the same Pillow give the same bytes."""
    check_pillow()
    from PIL import Image, ImageDraw, PngImagePlugin

    page = Image.new("RGB", (drawing.width * DOTS, drawing.height * DOTS), drawing.background)
    brush = ImageDraw.Draw(page)
    for mark in drawing.marks:
        paint(brush, mark)
    about = PngImagePlugin.PngInfo()
    about.add_itxt("Title", drawing.title)
    file = BytesIO()
    page.reduce(FINENESS).save(file, "PNG", pnginfo=about, dpi=(96 * SHARPNESS, 96 * SHARPNESS))
    return file.getvalue()


def paint(brush: ImageDraw.ImageDraw, mark: Mark) -> None:
    from PIL import ImageFont

    match mark:
        case Line(points, colour, width, dash):
            for stroke in dashes(points, dash or SOLID):
                dots = [(x * DOTS, y * DOTS) for x, y in stroke]
                brush.line(dots, colour, round(width * DOTS), joint="curve")
        case Box(x, y, width, height, colour):
            left, top, right, bottom = (round(edge * DOTS) for edge in (x, y, x + width, y + height))
            if right > left and bottom > top:
                brush.rectangle((left, top, right - 1, bottom - 1), colour)  # Pillow counts the last dot in
        case Words(x, y, text, size, colour, anchor, weight):
            fat = round(size * DOTS * BOLDNESS) if weight >= BOLD else 0
            font = ImageFont.load_default(size * DOTS)
            brush.text((x * DOTS, y * DOTS), spelled(text), colour, font, ANCHORS[anchor], stroke_width=fat)


def dashes(points: Sequence[Point], dash: tuple[float, float]) -> Iterator[list[Point]]:
    """Cut a stroke into dashes, which turn corners with it."""
    lengths = cycle(dash)
    inked, left = True, next(lengths)
    stroke = list(points[:1])
    for (x0, y0), (x1, y1) in pairwise(points):
        length = math.hypot(x1 - x0, y1 - y0)
        gone = 0.0
        while length - gone > left:
            gone += left
            end = (x0 + (x1 - x0) * gone / length, y0 + (y1 - y0) * gone / length)
            if inked:
                yield [*stroke, end]
            inked, left, stroke = not inked, next(lengths), [end]
        left -= length - gone
        stroke.append((x1, y1))
    if inked and len(stroke) > 1:
        yield stroke


def spelled(text: str) -> str:
    """The text in letters that the font has."""
    return "".join(map(_letters, text.translate(SPELLED)))


def _letters(sign: str) -> str:
    if sign.isascii() or sign in FONT_HAS:
        return sign
    plain = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    return plain or ("" if unicodedata.combining(sign) else "?")


def save(drawing: Drawing, path: Path) -> None:
    """Raises ``ConfigError`` or ``PillowMissingError`` before it touches the file, ``OSError`` from writing it."""
    path.write_bytes(writer_for(path)(drawing))


def writer_for(path: Path) -> Callable[[Drawing], bytes]:
    """What writes such a file; ask before a long run whether there is anything that does."""
    match path.suffix.lower():
        case ".svg":
            return lambda drawing: to_svg(drawing).encode()
        case ".png":
            check_pillow()
            return to_png
    raise ConfigError(f"{path.name!r} is not a picture name; end it with .svg or .png.")
