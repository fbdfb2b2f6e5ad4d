"""A package index for pip, with wheels that are made on the spot.

    python tests/hub/fake_index.py --root DIR [--port 0] [--rate BYTES_PER_SECOND]

`DIR` holds the wheels. The program prints the address to give to pip as its index.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class FakeIndex:
    """Serves the wheels of a folder. `rate` slows it down; `status` answers everything with an error."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rate: int | None = None
        self.status: int | None = None
        self.sent = 0
        self.paths: list[str] = []
        self.server: ThreadingHTTPServer

    def start(self, port: int = 0) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"index": self}))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/simple/"

    def add(self, name: str, version: str, files: Mapping[str, bytes], *, tag: str = "py3-none-any") -> Path:
        """Makes a wheel of these files."""
        path = self.root / f"{name.replace('-', '_')}-{version}-{tag}.whl"
        path.parent.mkdir(parents=True, exist_ok=True)
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        members = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
        }
        with zipfile.ZipFile(path, "w") as archive:
            record = ""
            for member, content in members.items():
                archive.writestr(member, content)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                record += f"{member},sha256={digest},{len(content)}\n"
            archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
        return path


@contextmanager
def running(root: Path) -> Iterator[FakeIndex]:
    index = FakeIndex(root)
    index.start()
    try:
        yield index
    finally:
        index.stop()


class _Handler(BaseHTTPRequestHandler):
    index: FakeIndex

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the overridden name
        pass

    def do_GET(self) -> None:
        self.index.paths.append(self.path)
        kind, _, name = self.path.strip("/").partition("/")
        file = self.index.root / name
        if self.index.status is not None:
            self.send_error(self.index.status)
        elif kind == "simple":
            self._page(name)
        elif kind == "files" and file.is_file():
            self._wheel(file)
        else:
            self.send_error(404)

    def _page(self, name: str) -> None:
        wheels = [
            path for path in self.index.root.glob("*.whl") if _normal(path.name.partition("-")[0]) == _normal(name)
        ]
        if not wheels:
            self.send_error(404)
            return
        links = "".join(
            f'<a href="/files/{path.name}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}">{path.name}</a>'
            for path in wheels
        )
        page = f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def _wheel(self, file: Path) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(file.stat().st_size))
        self.end_headers()
        step = max(self.index.rate // 20, 1) if self.index.rate else 1 << 18
        try:
            with file.open("rb") as source:
                while chunk := source.read(step):
                    self.wfile.write(chunk)
                    self.index.sent += len(chunk)
                    if self.index.rate:
                        time.sleep(0.05)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rate", type=int)
    args = parser.parse_args()
    index = FakeIndex(args.root)
    index.rate = args.rate
    index.start(args.port)
    print(index.url, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
