"""Write a drawing as SVG.

By hand: a plotting library would be the largest dependency of the project, for a
handful of strokes.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from .drawing import Box, Drawing, Line, Mark, Words

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
