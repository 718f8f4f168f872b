"""How often the long suites repeat what they do: ``HEADGATE_CHAOS=5 make chaos`` does five times as much."""

import os


def scaled(count):
    return count * int(os.environ.get("HEADGATE_CHAOS", "1"))
