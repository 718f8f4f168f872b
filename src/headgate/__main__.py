"""The ``headgate`` command, also as ``python -m headgate``.

Importing the command line takes a moment; Ctrl-C in that moment ends the process as it does later, with exit code 4.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from .cli import execute

        code = execute()
    except KeyboardInterrupt:
        print("\nheadgate: stopped.", file=sys.stderr)
        code = 4
    sys.exit(code)


if __name__ == "__main__":
    main()
