"""A vendor, a store and a controller for Headgate; ``pyproject.toml`` names them as entry points."""
