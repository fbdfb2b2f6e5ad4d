"""Releases of a project, as GitHub Enterprise offers them, that misbehave on demand.

    python tests/hub/fake_releases.py --root DIR [--port 0]

`DIR/OWNER/NAME/TAG/` holds the files of a release. The program prints the address for `LEMONADE_RELEASES_ENDPOINT`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPOSITORY = "ggml-org/llama.cpp"


class FakeReleases:
    """Serves the files of a folder.

    Attributes:
        digests: whether the releases tell the hashes of their files.
        wrong: whether the bytes that come are others.
        status: answers everything with this error.
        rate: bytes per second.
        cut: closes the first connection after so many bytes of a file.
        seen: paths that were asked for.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.set()
        self.server: ThreadingHTTPServer

    def set(
        self,
        *,
        digests: bool = True,
        wrong: bool = False,
        status: int | None = None,
        rate: int | None = None,
        cut: int | None = None,
    ) -> None:
        self.digests, self.wrong, self.status, self.rate, self.cut = digests, wrong, status, rate, cut
        self.seen: list[str] = []

    def start(self, port: int = 0) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"fake": self}))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def add(self, tag: str, name: str, content: bytes, *, repository: str = REPOSITORY) -> str:
        """Puts a file into a release; answers its sha256. Later releases are newer."""
        path = self.root / repository / tag / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return hashlib.sha256(content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeReleases

    def do_GET(self) -> None:
        fake = self.fake
        fake.seen.append(self.path)
        if fake.status:
            self._answer(b"no", fake.status)
        elif match := re.fullmatch(r"/api/v3/repos/([^/]+/[^/]+)/releases/tags/([^/?]+)", self.path):
            folder = fake.root / match[1] / match[2]
            self._answer(json.dumps(self._release(folder)).encode() if folder.is_dir() else b"", 0)
        elif match := re.fullmatch(r"/api/v3/repos/([^/]+/[^/]+)/releases\?per_page=\d+", self.path):
            folders = sorted((fake.root / match[1]).iterdir(), key=lambda path: path.name, reverse=True)
            self._answer(json.dumps([self._release(folder) for folder in folders]).encode())
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/releases/download/([^/]+)/([^/]+)", self.path):
            path = fake.root / match[1] / match[2] / match[3]
            self._file(path.read_bytes()) if path.is_file() else self._answer(b"no", 404)
        else:
            self._answer(b"no", 404)

    def _release(self, folder: Path) -> dict[str, object]:
        assets = []
        for path in sorted(folder.iterdir()):
            place = f"{self.fake.url}/{folder.parent.parent.name}/{folder.parent.name}/releases/download"
            digest = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" if self.fake.digests else None
            assets.append(
                {
                    "name": path.name,
                    "size": path.stat().st_size,
                    "digest": digest,
                    "browser_download_url": f"{place}/{folder.name}/{path.name}",
                }
            )
        return {"tag_name": folder.name, "prerelease": True, "assets": assets}

    def _file(self, content: bytes) -> None:
        if self.fake.wrong:
            content = bytes(byte ^ 1 for byte in content)
        start = 0
        if match := re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", "")):
            start = int(match[1])
        self.send_response(206 if start else 200)
        if start:
            self.send_header("content-range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("content-length", str(len(content) - start))
        self.send_header("etag", '"one"')
        self.end_headers()
        rest = content[start:]
        if self.fake.cut is not None and len(rest) > self.fake.cut:
            rest, self.fake.cut = rest[: self.fake.cut], None
            self.close_connection = True
        step = (self.fake.rate or len(rest) * 20 or 1) // 20 or 1
        for at in range(0, len(rest), step):
            self.wfile.write(rest[at : at + step])
            if self.fake.rate:
                time.sleep(0.05)

    def _answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status or (200 if body else 404))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Says nothing."""


def tar(files: Mapping[str, bytes], *members: tarfile.TarInfo) -> bytes:
    """A .tar.gz with programs, and behind them whatever else is given."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            archive.addfile(info, io.BytesIO(content))
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return target.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


@contextmanager
def running(root: Path) -> Iterator[FakeReleases]:
    fake = FakeReleases(root)
    fake.start()
    try:
        yield fake
    finally:
        fake.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    server = FakeReleases(arguments.root)
    server.start(arguments.port)
    print(server.url, flush=True)
    threading.Event().wait()
