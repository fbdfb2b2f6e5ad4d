"""A browser without a window that opens pages of `pages/` and hears what they saw."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

PAGES = Path(__file__).parent / "pages"
#: Names that Chromium's program goes by.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 150


def browse(page: str, query: str, folder: Path) -> Any:
    """What a page sent to `/seen`.

    Args:
        page: the file, which is served on a port of loopback of its own, as another program's page is.
        query: what stands behind the `?` of its address.
        folder: an empty one, for the browser's profile.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("Chromium is not installed; `apt-get install chromium-headless-shell` brings it")
    seen: Queue[bytes] = Queue()
    with _served(PAGES / page, seen) as port:
        command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--autoplay-policy=no-user-gesture-required", "--remote-debugging-port=0", f"--user-data-dir={folder}",
            f"http://127.0.0.1:{port}/?{query}",
        ]  # fmt: skip
        with (folder / "log.txt").open("wb") as log:
            # A group of its own, so that its processes end with it.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            return json.loads(seen.get(timeout=SECONDS))
        except Empty:
            raise AssertionError(f"the page said nothing:\n{(folder / 'log.txt').read_text()[-4000:]}") from None
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def _served(page: Path, seen: Queue[bytes]) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.startswith("/?")
            body = page.read_bytes() if found else b""
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            seen.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
