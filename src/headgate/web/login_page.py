"""What a browser is shown that brings no token, or another than the page's: what to do, and nothing of what is behind.

The page's own files are behind the token too, so the style is inside; the policy lets in this one by its hash.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

STYLE = """
:root { color-scheme: light dark; --paper: #f5f6f8; --panel: #ffffff; --ink: #17202b; --soft: #465261;
  --rule: #e3e7ec; --raised: #f0f2f5; --accent: #1668c7; }
@media (prefers-color-scheme: dark) { :root { --paper: #0e1319; --panel: #161c24; --ink: #e6ebf1; --soft: #b4bfcb;
  --rule: #252e3a; --raised: #1e2631; --accent: #5aa2f2; } }
* { box-sizing: border-box; }
body { display: grid; min-height: 100vh; margin: 0; padding: 16px; place-items: center; background: var(--paper);
  color: var(--ink); font: 15px/1.5 Inter, ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { width: 100%; max-width: 34rem; padding: clamp(20px, 5vw, 32px); border: 1px solid var(--rule);
  border-top: 3px solid var(--accent); border-radius: 10px; background: var(--panel); }
small { color: var(--soft); font-weight: 600; }
h1 { margin: 2px 0 10px; font-size: 20px; line-height: 1.3; }
p, li { color: var(--soft); }
p { margin: 0 0 12px; }
ul { margin: 0; padding-left: 1.2em; }
li + li { margin-top: 6px; }
a { color: var(--accent); }
code { padding: 1px 5px; border-radius: 5px; background: var(--raised); color: var(--ink);
  font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
"""
STYLE_HASH = f"'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'"
_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><meta name="robots" content="noindex"><title>Headgate</title>'
    f'<link rel="icon" href="data:,"><style>{STYLE}</style>'
    "</head><body><main><small>Headgate</small>"
)
_END = "</main></body></html>"
_WAYS = (
    "<ul><li>Open the complete link that was printed in the terminal when the page started: it has "
    "<code>?token=</code> in it.</li><li>If it is lost, run <code>headgate web</code> on that machine: it prints a "
    "new link that shows all runs.</li></ul>"
)
WELCOME = _HEAD + '<p><a href="{0}">Continue to the page</a></p>' + _END
NO_TOKEN = (
    _HEAD + "<h1>This page needs its link</h1><p>The address has no token, and this browser has not opened the "
    "link yet.</p>" + _WAYS + _END
)
WRONG_TOKEN = (
    _HEAD
    + "<h1>This link is not valid</h1><p>Its token is wrong. Each start of the page makes a new token, so the link "
    "may be old, or it was not copied completely.</p>" + _WAYS + _END
)
