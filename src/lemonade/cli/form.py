"""A file on its way to the daemon, as a form."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

#: Bytes that are read and sent at once.
PIECE = 1 << 16


def form(fields: Mapping[str, str], file: Path) -> tuple[Iterator[bytes], dict[str, str]]:
    """A body of `fields`, and of `file` as the field `file`, and its headers. The file is read while it is sent."""
    boundary = f"lemonade-{secrets.token_hex(16)}"
    head = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{text}\r\n'
        for field, text in fields.items()
    )
    name = file.name.replace('"', "_").replace("\n", "_").replace("\r", "_")
    head += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
    head += "Content-Type: application/octet-stream\r\n\r\n"
    first, last = head.encode("utf-8", "replace"), f"\r\n--{boundary}--\r\n".encode()
    headers = {
        "Content-Type": f"multipart/form-data; boundary={boundary}",
        "Content-Length": str(len(first) + file.stat().st_size + len(last)),
    }

    def pieces() -> Iterator[bytes]:
        yield first
        with file.open("rb") as opened:
            while piece := opened.read(PIECE):
                yield piece
        yield last

    return pieces(), headers
