"""A reverse proxy on this machine: the gate for programs in any language, by changing their base URL.

    program ── http://127.0.0.1:8747/v1/... ──> Proxy ── line, credential, retries ──> https://api.example.com/v1/...
                                                  │
    admission    who may ask, and for what        ├── mounts    which path leads to which API
    upload       the body on its way there        └── headers   what is taken off and put on, both ways
    flight       one request, there and back          answering   refusals and troubles as JSON

Nothing leaves for another origin than those it was started for, and no credential is in anything that it says.
"""

from .mounts import Mount, lines_of, mounts_of
from .server import Bounds, Proxy

__all__ = ["Bounds", "Mount", "Proxy", "lines_of", "mounts_of"]
