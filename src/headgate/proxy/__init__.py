"""A local reverse proxy: the gate for programs in any language, by changing their base URL.

    program ── http://127.0.0.1:8747/v1/... ──> Proxy ── queue, credential, retries ──> https://api.example.com/v1/...
                                                  │
    server          listens, drains, stops        ├── admission         which requests are allowed
    connection      the clients' side             ├── mounts            paths and headers, both ways
    proxied_request one request and its response  ├── upload            the request's body
                                                  ├── upstream          the API's side
                                                  └── error_response    errors of the proxy itself, as JSON

Nothing is sent to another origin than those it was started for, and no credential is in anything that it returns.
"""

from .connection import Bounds
from .mounts import Mount, lines_of, mounts_of
from .server import Proxy

__all__ = ["Bounds", "Mount", "Proxy", "lines_of", "mounts_of"]
