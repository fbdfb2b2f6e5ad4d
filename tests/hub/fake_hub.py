"""A hub that speaks as Hugging Face and as ModelScope, with switches for everything that goes wrong on real ones.

    python tests/hub/fake_hub.py --root DIR [--port 0] [--switches '{"cut": 1000}']

`DIR/OWNER/NAME/…` are the repositories. Files of at least 1 KiB, and weights, are kept in the storage: a second server
on its own port, to which `resolve` redirects. The program prints its address, then the storage's; `GET /_record` tells
every request that both have had, and `POST /_switches` takes new switches.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

WEIGHTS = (".gguf", ".bin", ".safetensors", ".onnx", ".pth")
LARGE = 1024


@dataclass
class Switches:
    """What goes wrong. A switch that ends in `_times` says how often; -1 is always.

    Attributes:
        cut: close the connection after so many bytes of a body.
        wrong: send other bytes of the right length.
        page: send a web page of the right length.
        empty: send no bytes at all.
        refuse_range: answer 416 to a request for a range.
        ignore_range: answer 200 with all bytes to a request for a range.
        ignore_if_range: answer 206 whatever `If-Range` says.
        new_etag: a new ETag with every answer.
        status: the status of an answer, for `status_times` answers.
        rate: bytes per second.
        stall: send so many bytes, then nothing.
        gated: refuse everybody; the repository can be listed.
        token: refuse everybody who does not send it, as a private repository does.
        revision: the commit to claim instead of the one computed from the files.
        redirects: so many redirects on the hub itself before the one to the storage.
        storage: the address to redirect to instead of the storage's own.
        listing: a JSON text to answer for every listing.
        listing_status: the status of a listing, for `listing_times` answers.
    """

    cut: int | None = None
    cut_times: int = -1
    wrong_times: int = 0
    page_times: int = 0
    empty_times: int = 0
    refuse_range_times: int = 0
    ignore_range: bool = False
    ignore_if_range: bool = False
    new_etag: bool = False
    status: int = 500
    status_times: int = 0
    rate: int | None = None
    stall: int | None = None
    gated: bool = False
    token: str | None = None
    revision: str | None = None
    redirects: int = 0
    storage: str | None = None
    listing: str | None = None
    listing_status: int = 503
    listing_times: int = 0


@dataclass
class Seen:
    """One request, and how many bytes of a body it got."""

    server: str
    method: str
    path: str
    headers: dict[str, str]
    status: int = 0
    sent: int = 0


@dataclass
class FakeHub:
    """Both servers. `files` may be changed while it runs."""

    root: Path
    switches: Switches = field(default_factory=Switches)
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.etags = 0
        self._digests: dict[tuple[Path, int], tuple[str, str]] = {}
        self.servers: list[ThreadingHTTPServer] = []

    def start(self, port: int = 0) -> None:
        for name, at in (("hub", port), ("storage", 0)):
            handler = type("Handler", (_Handler,), {"hub": self, "name": name})
            server = ThreadingHTTPServer(("127.0.0.1", at), handler)
            server.daemon_threads = True
            self.servers.append(server)
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.servers[0].server_port}"

    @property
    def storage_url(self) -> str:
        return f"http://127.0.0.1:{self.servers[1].server_port}"

    def set(self, **switches: Any) -> None:
        """New switches; all others are off."""
        self.switches = Switches(**switches)

    def take(self, name: str) -> bool:
        """Uses up one time of a switch."""
        with self.lock:
            left = getattr(self.switches, name)
            if left > 0:
                setattr(self.switches, name, left - 1)
            return bool(left)

    def calls(self, server: str | None = None) -> int:
        return len([each for each in self.seen if server in (None, each.server)])

    def sent(self) -> int:
        """Bytes that the storage has sent."""
        return sum(each.sent for each in self.seen if each.server == "storage")

    def write(self, repository: str, path: str, content: bytes) -> Path:
        file = self.root / repository / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    def digests(self, file: Path) -> tuple[str, str]:
        """sha256 and git's object id."""
        facts = file.stat()
        key = (file, facts.st_mtime_ns)
        if key not in self._digests:
            sha256, sha1 = hashlib.sha256(), hashlib.sha1(f"blob {facts.st_size}\0".encode())
            with file.open("rb") as source:
                while chunk := source.read(1 << 20):
                    sha256.update(chunk)
                    sha1.update(chunk)
            self._digests[key] = (sha256.hexdigest(), sha1.hexdigest())
        return self._digests[key]

    def paths(self, repository: str) -> list[str]:
        folder = self.root / repository
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())

    def revision(self, repository: str) -> str:
        if self.switches.revision:
            return self.switches.revision
        text = "".join(f"{path} {self.digests(self.root / repository / path)[1]}\n" for path in self.paths(repository))
        return hashlib.sha1(text.encode()).hexdigest()

    def entry(self, repository: str, path: str) -> dict[str, Any]:
        file = self.root / repository / path
        sha256, sha1 = self.digests(file)
        size = file.stat().st_size
        facts: dict[str, Any] = {"rfilename": path, "size": size, "blobId": sha1}
        if is_large(file):
            facts["lfs"] = {"sha256": sha256, "size": size, "pointerSize": 134}
        return facts


@contextmanager
def running(root: Path, **switches: Any) -> Iterator[FakeHub]:
    hub = FakeHub(root, Switches(**switches))
    hub.start()
    try:
        yield hub
    finally:
        hub.stop()


def is_large(file: Path) -> bool:
    return file.suffix in WEIGHTS or file.stat().st_size >= LARGE


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    name: str
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the overridden name
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/_switches":
            self.hub.set(**json.loads(body))
            self._json({})
        else:
            self._error(404, "", "no such route")

    def _answer(self) -> None:
        if self.path == "/_record":
            self._json([asdict(each) for each in self.hub.seen])
            return
        self.seen = Seen(
            self.name, self.command, self.path, {key.lower(): value for key, value in self.headers.items()}
        )
        self.hub.seen.append(self.seen)
        try:
            if self.name == "storage":
                self._storage()
            else:
                self._hub()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _hub(self) -> None:
        parts = urlsplit(self.path)
        path = [unquote(part) for part in parts.path.strip("/").split("/")]
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if path == ["api", "models"]:
            self._search(query.get("search", ""), int(query.get("limit", 100)), query.get("filter"))
            return
        if path == ["openapi", "v1", "models"]:
            self._modelscope_search(query.get("search", ""), int(query.get("page_size", 10)))
            return
        if path[:3] == ["api", "v1", "models"] and path[5:6] == ["repo"]:
            self._modelscope("/".join(path[3:5]), path[6:], query.get("FilePath", ""))
            return
        if path[:2] == ["api", "models"] and len(path) >= 4:
            self._listing("/".join(path[2:4]), path[4:])
        elif len(path) >= 5 and path[2] == "resolve":
            hops = int(parse_qs(parts.query).get("hop", ["0"])[0])
            self._resolve("/".join(path[:2]), path[3], "/".join(path[4:]), hops)
        else:
            self._error(404, "", "no such route")

    def _may_read(self) -> bool:
        token = self.hub.switches.token
        if token is not None and self.headers.get("authorization") != f"Bearer {token}":
            self._error(401, "RepoNotFound", "Repository not found")
            return False
        return True

    def _listing(self, repository: str, rest: list[str]) -> None:
        if not self._may_read():
            return
        if self.hub.take("listing_times"):
            self._error(self.hub.switches.listing_status, "", "out of order")
            return
        if self.hub.switches.listing is not None:
            self._bytes(200, self.hub.switches.listing.encode(), {"Content-Type": "application/json"})
            return
        if not (self.hub.root / repository).is_dir():
            self._error(401, "RepoNotFound", "Repository not found")
            return
        entries = [self.hub.entry(repository, path) for path in self.hub.paths(repository)]
        if rest[:1] == ["tree"]:
            tree = []
            for entry in entries:
                oid = entry["blobId"]
                row = {"type": "file", "path": entry["rfilename"], "size": entry["size"], "oid": oid}
                if "lfs" in entry:
                    row["lfs"] = {"oid": entry["lfs"]["sha256"], "size": entry["size"], "pointerSize": 134}
                tree.append(row)
            self._json(tree)
            return
        facts = {"id": repository, "modelId": repository, "sha": self.hub.revision(repository), "private": False}
        self._json({**facts, "tags": [], "downloads": 0, "siblings": entries})

    def _found(self, words: str) -> list[str]:
        """The repositories whose names have all of these words."""
        names = [f"{each.parent.name}/{each.name}" for each in sorted(self.hub.root.glob("*/*")) if each.is_dir()]
        return [name for name in names if all(word in name.lower() for word in words.lower().split())]

    def _search(self, words: str, limit: int, kind: str | None) -> None:
        if self.hub.take("listing_times"):
            self._error(self.hub.switches.listing_status, "", "out of order")
            return
        rows = []
        for name in self._found(words):
            tags = ["gguf"] if any(path.endswith(".gguf") for path in self.hub.paths(name)) else ["safetensors"]
            task = "text-to-image" if "picture" in name else "text-generation"
            facts = {"id": name, "modelId": name, "private": False, "tags": tags, "pipeline_tag": task}
            if kind is None or kind in tags:
                rows.append({**facts, "downloads": len(name), "likes": 1})
        self._json(rows[:limit])

    def _modelscope_search(self, words: str, limit: int) -> None:
        rows = [{"id": name, "downloads": len(name), "likes": 2, "tags": []} for name in self._found(words)]
        self._json({"success": True, "data": {"models": rows[:limit], "total_count": len(rows)}})

    def _modelscope(self, repository: str, rest: list[str], path: str) -> None:
        if not (self.hub.root / repository).is_dir():
            body = {"Code": 10010205001, "Success": False, "Message": "not found", "Data": {}}
            self._bytes(404, json.dumps(body).encode(), {"Content-Type": "application/json"})
        elif rest == ["files"]:
            rows: list[dict[str, Any]] = [{"Path": "folder", "Type": "tree", "Size": 0, "Sha256": ""}]
            for name in self.hub.paths(repository):
                file = self.hub.root / repository / name
                sha256, _ = self.hub.digests(file)
                rows.append({"Path": name, "Type": "blob", "Size": file.stat().st_size, "Sha256": sha256})
            self._json({"Code": 200, "Success": True, "Data": {"Files": rows}})
        else:
            file = self.hub.root / repository / path
            self._file(file, f'"{self.hub.digests(file)[0]}"', {})

    def _resolve(self, repository: str, revision: str, path: str, hops: int) -> None:
        if not self._may_read():
            return
        if self.hub.switches.gated:
            self._error(403, "GatedRepo", "Access to this model is restricted")
            return
        file = self.hub.root / repository / path
        if not file.is_file():
            self._error(404, "EntryNotFound", "Entry not found")
            return
        if hops < self.hub.switches.redirects:
            self._redirect(f"{urlsplit(self.path).path}?hop={hops + 1}", {})
            return
        sha256, sha1 = self.hub.digests(file)
        headers = {"X-Repo-Commit": self.hub.revision(repository)}
        if is_large(file):
            headers |= {"X-Linked-ETag": f'"{sha256}"', "X-Linked-Size": str(file.stat().st_size)}
            base = self.hub.switches.storage or self.hub.storage_url
            self._redirect(f"{base}/{sha256}/{repository}/{path}?signature=secret", headers)
        else:
            self._file(file, f'"{sha1}"', headers)

    def _storage(self) -> None:
        _, sha256, path = unquote(urlsplit(self.path).path).split("/", 2)
        file = self.hub.root / path
        etag = f'"{sha256[:32]}"'
        if self.hub.switches.new_etag:
            with self.hub.lock:
                self.hub.etags += 1
            etag = f'"etag-{self.hub.etags}"'
        if self.hub.take("status_times"):
            self._bytes(self.hub.switches.status, b"out of order", {})
            return
        self._file(file, etag, {})

    def _file(self, file: Path, etag: str, headers: dict[str, str]) -> None:
        switches, size = self.hub.switches, file.stat().st_size
        headers |= {"ETag": etag, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        start, status = 0, 200
        asked = self.headers.get("range", "")
        matches = switches.ignore_if_range or self.headers.get("if-range") in (None, etag)
        if asked.startswith("bytes=") and not switches.ignore_range and matches:
            start, status = int(asked[6:].partition("-")[0]), 206
            if start >= size or self.hub.take("refuse_range_times"):
                self._bytes(416, b"", {"Content-Range": f"bytes */{size}"})
                return
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        if self.hub.take("page_times"):
            page = b"<!DOCTYPE html><title>Log in</title>".ljust(size - start, b" ")
            self._bytes(status, page[: size - start], {**headers, "Content-Type": "text/html; charset=utf-8"})
            return
        if self.hub.take("empty_times"):
            self._bytes(200, b"", {"ETag": etag})
            return
        self._head(status, {**headers, "Content-Length": str(size - start)})
        if self.command == "GET":
            self._send(file, start, size)

    def _send(self, file: Path, start: int, size: int) -> None:
        switches = self.hub.switches
        is_wrong = self.hub.take("wrong_times")
        limit = size - start
        is_cut = switches.cut is not None and switches.cut < limit and self.hub.take("cut_times")
        if is_cut and switches.cut is not None:
            limit = switches.cut
        if switches.stall is not None:
            limit = min(limit, switches.stall)
        step = max(min(switches.rate // 20, 1 << 18), 1) if switches.rate else 1 << 18
        with file.open("rb") as source:
            source.seek(start)
            left = limit
            while left > 0:
                chunk = source.read(min(step, left))
                left -= len(chunk)
                if is_wrong:
                    chunk = chunk[:4] + bytes(byte ^ 0x55 for byte in chunk[4:])
                self.wfile.write(chunk)
                self.seen.sent += len(chunk)
                if switches.rate:
                    time.sleep(step / switches.rate)
        if limit < size - start:
            while switches.stall is not None and self.hub.switches is switches:
                time.sleep(0.02)
            self.close_connection = True
            self.wfile.flush()
            self.connection.close()

    def _redirect(self, target: str, headers: dict[str, str]) -> None:
        self._bytes(302, b"", {**headers, "Location": target})

    def _error(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message} if code else {}
        self._bytes(status, json.dumps({"error": message}).encode(), {**headers, "Content-Type": "application/json"})

    def _json(self, value: Any) -> None:
        self._bytes(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _bytes(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._head(status, {**headers, "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        if hasattr(self, "seen"):
            self.seen.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--switches", type=json.loads, default={}, help=", ".join(each.name for each in fields(Switches))
    )
    args = parser.parse_args()
    hub = FakeHub(args.root, Switches(**args.switches))
    hub.start(args.port)
    print(hub.url, hub.storage_url, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
