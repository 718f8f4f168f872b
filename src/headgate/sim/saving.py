"""Write a drawing to a file in the form its name asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headgate.errors import ConfigError

from .drawing import Drawing
from .png import check_pillow, to_png
from .svg import to_svg


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
    raise ConfigError(f"a picture is an SVG or a PNG: end the name with .svg or .png, not {path.name!r}.")
