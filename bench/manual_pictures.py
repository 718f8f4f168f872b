"""Make the pictures of the manual from real runs: `python -m bench.manual_pictures [--only lab|page]`.

| picture                        | is                                                                                |
|--------------------------------|-----------------------------------------------------------------------------------|
| docs/pictures/*.svg            | the lab: `headgate simulate SCENARIO --picture`, seed 0, in virtual time          |
| docs/page-light.png, page-dark | the page of a `headgate run` against `headgate mock`, photographed while it runs   |

The page needs chromium and takes about a minute; the lab takes two.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.ports import free_port

DOCS = Path(__file__).parent.parent / "docs"
LAB = {
    "quota-found": ("step", "adaptive"),
    "quota-stated": ("hdr-tb", "adaptive"),
    "outage": ("outage", "adaptive"),
    "concurrency": ("conc16", "adaptive"),
    "beside-others": ("step", "adaptive,cubic,backoff"),
}
"""Picture: scenario and strategies."""
ROWS = 2_000
KEYS = (
    "600/min,burst=20,tokens=60000/min",
    "500/min,burst=20,tokens=60000/min,0.5@20s",
    "300/min,burst=20,per-day=90",
)
"""A small burst: a full bucket of a whole minute would be a spike beside which the learned rates are flat lines."""
LABELS = ("team-a", "team-b", "trial")
OUTAGE = "34s+6s"
PORT = 8080
PHOTO_AT = 52.0
"""Seconds into the run: one quota has halved, one key has spent its day, and an outage is over."""
WINDOW = {"width": 1280, "height": 922}


def headgate(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "headgate", *map(str, words)]


def draw_lab() -> None:
    folder = DOCS / "pictures"
    folder.mkdir(exist_ok=True)
    for name, (scenario, strategies) in LAB.items():
        picture = folder / f"{name}.svg"
        words = headgate("simulate", scenario, "--strategy", strategies, "--seeds", "1", "--picture", picture)
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        print(picture)


def photograph_page() -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        rows = [
            {"custom_id": f"row-{number}", "method": "POST", "url": "/v1/chat/completions", "body": question(number)}
            for number in range(ROWS)
        ]
        (here / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        keys = "".join(f"{label}=mock-key-{number}\n" for number, label in enumerate(LABELS, 1))
        (here / "keys.txt").write_text(keys)
        (here / "keys.txt").chmod(0o600)
        environment = {**os.environ, "HEADGATE_STATE": str(here / "state")}
        port = PORT if is_free(PORT) else free_port()
        limits = [word for key in KEYS for word in ("--key", key)]
        api = headgate(
            "mock", "--provider", "openai", *limits, "--outage", OUTAGE, "--latency", "400ms", "--port", port
        )
        run = headgate("run", "rows.jsonl", "-o", "answers.jsonl", "--to", f"http://127.0.0.1:{port}/openai/v1")
        run += ["--keys", "file:keys.txt", "--store", "none", "--web", "--quiet"]
        with subprocess.Popen(api, cwd=here, env=environment, stdout=subprocess.DEVNULL) as server:
            try:
                wait_for(port)
                with subprocess.Popen(run, cwd=here, env=environment, stderr=subprocess.PIPE, text=True) as batch:
                    try:
                        photograph(link_of(batch))
                    finally:
                        batch.terminate()
                        batch.communicate(timeout=30)
            finally:
                server.terminate()


def question(number: int) -> dict[str, object]:
    text = f"Summarise article {number} in two sentences. " + "It is about gates, weirs and rivers. " * (number % 12)
    return {"model": "gpt-4o-mini", "max_tokens": 120, "messages": [{"role": "user", "content": text}]}


def link_of(batch: subprocess.Popen[str]) -> str:
    assert batch.stderr is not None
    for line in batch.stderr:
        found = re.search(r"http://\S+token=\S+", line)
        if found:
            return found[0]
    raise SystemExit(f"the run ended with {batch.wait()} and printed no link")


def photograph(link: str) -> None:
    from playwright.sync_api import sync_playwright

    began = time.monotonic()
    chromium = os.environ.get("HEADGATE_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        pages = {}
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport=WINDOW, color_scheme=scheme, device_scale_factor=1.5)  # type: ignore[arg-type]
            pages[scheme] = context.new_page()
            pages[scheme].goto(link)
        time.sleep(max(0.0, PHOTO_AT - (time.monotonic() - began)))
        for scheme, page in pages.items():
            page.screenshot(path=DOCS / f"page-{scheme}.png")
            print(DOCS / f"page-{scheme}.png")
        browser.close()


def is_free(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) != 0


def wait_for(port: int) -> None:
    for _ in range(600):
        if not is_free(port):
            return
        time.sleep(0.1)
    raise SystemExit("the mock API did not start")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of the manual from real runs.")
    parser.add_argument("--only", choices=("lab", "page"))
    chosen = parser.parse_args().only
    if chosen != "page":
        draw_lab()
    if chosen != "lab":
        photograph_page()


if __name__ == "__main__":
    main()
