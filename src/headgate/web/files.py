"""The page's files: read once, found by their exact names, so no path leads anywhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
MOST_FILES = 100
LARGEST_FILE = 1_000_000


@dataclass(frozen=True, slots=True)
class PageFile:
    body: bytes
    kind: str


def page_files(folder: Path = FOLDER) -> dict[str, PageFile]:
    """By the path below the folder, with ``/``; what no browser needs is left out."""
    found: dict[str, PageFile] = {}
    for path in sorted(folder.rglob("*"))[:MOST_FILES]:
        kind = KINDS.get(path.suffix)
        if kind is not None and path.is_file() and path.stat().st_size <= LARGEST_FILE:
            found[path.relative_to(folder).as_posix()] = PageFile(path.read_bytes(), kind)
    return found
