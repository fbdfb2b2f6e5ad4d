from __future__ import annotations

import http.server
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lemonade.errors import InvalidArgument
from lemonade.inference import remote_images
from lemonade.inference.remote_images import fetch, is_public, resolve
from tests.inference.images import data_url, png, whole_webp

PLACE = "messages[0].content[1]"
PICTURE = png(10, 5)


@dataclass
class Site:
    """A web server on loopback that counts who comes."""

    server: http.server.ThreadingHTTPServer
    seen: list[tuple[str, str]] = field(default_factory=list)
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def url(self, path: str, host: str = "pictures.test", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            one.seen.append((self.path, self.headers["Host"]))
            status, headers, body = one.answers[self.path]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                pass

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    one = Site(server)
    one.answers["/a.png"] = (200, {"Content-Type": "image/png"}, PICTURE)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield one
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `pictures.test`, with its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("certificate")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=pictures.test"]
    command += ["-addext", "subjectAltName=DNS:pictures.test", "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "certificate.pem").read_bytes())
    return both


@pytest.fixture
def secure_site(site: Site, certificate: Path) -> Site:
    """The same over TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    site.server.socket = context.wrap_socket(site.server.socket, server_side=True)
    return site


def home(host: str, port: int) -> list[str]:
    """A name server for which every name of the tests is this machine, and addresses are themselves."""
    return ["127.0.0.1"] if host.endswith(".test") else resolve(host, port)


def is_home(address: str) -> bool:
    return address == "127.0.0.1"


def refused(url: str, **more: object) -> str:
    with pytest.raises(InvalidArgument) as caught:
        fetch(PLACE, url, **more)  # type: ignore[arg-type]
    assert caught.value.param == PLACE
    assert caught.value.message.startswith(f"'{PLACE}' cannot be fetched: ")
    return caught.value.message


def refused_at_home(url: str) -> str:
    return refused(url, resolve=home, allowed=is_home)


def test_a_picture_comes_as_a_data_url(site: Site) -> None:
    assert fetch(PLACE, site.url("/a.png"), resolve=home, allowed=is_home) == (data_url(PICTURE), 50)
    assert site.seen == [("/a.png", f"pictures.test:{site.port}")]


def test_a_webp_picture_comes_as_png(site: Site) -> None:
    site.answers["/a.webp"] = (200, {"Content-Type": "image/webp"}, whole_webp(10, 5))
    url, pixels = fetch(PLACE, site.url("/a.webp"), resolve=home, allowed=is_home)
    assert url.startswith("data:image/png;base64,iVBORw0KGgo")
    assert pixels == 50
    site.answers["/b.webp"] = (200, {"Content-Type": "image/webp"}, whole_webp(10, 5)[:40])
    assert "what is there is a damaged WebP picture" in refused_at_home(site.url("/b.webp"))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "localhost",
        "LOCALHOST.",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
    ],
)
def test_nothing_inside_is_fetched(site: Site, host: str) -> None:
    assert refused(site.url("/a.png", host))
    assert site.seen == []


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.0.1", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "100.127.255.255", "198.18.0.1", "224.0.0.1", "239.255.255.255"),
        *("240.0.0.1", "255.255.255.255", "192.0.2.1", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *(
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "fe80::1",
            "fe80::1%eth0",
            "fc00::1",
            "fd12::1",
            "fec0::1",
            "ff02::1",
        ),
        *("64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::", "2001:0:7f00:1::", "2001:db8::1", "not an address", ""),
    ],
)
def test_addresses_inside(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_addresses_outside(address: str) -> None:
    assert is_public(address)


def test_one_inner_address_among_outer_ones_is_enough(site: Site) -> None:
    mixed = ["8.8.8.8", "127.0.0.1"]
    message = refused(site.url("/a.png"), resolve=lambda host, port: mixed)
    assert "does not lead to the public internet" in message
    assert site.seen == []


def test_the_name_is_asked_for_once(site: Site) -> None:
    answers = iter([["127.0.0.1"], ["127.0.0.2"]])
    fetch(PLACE, site.url("/a.png"), resolve=lambda host, port: next(answers), allowed=is_home)
    assert next(answers) == ["127.0.0.2"]


def test_redirects_are_followed_and_checked_again(site: Site) -> None:
    site.answers["/1"] = (302, {"Location": "/2"}, b"")
    site.answers["/2"] = (307, {"Location": site.url("/3", "other.test")}, b"")
    site.answers["/3"] = (301, {"Location": "a.png"}, b"")
    assert fetch(PLACE, site.url("/1"), resolve=home, allowed=is_home)[1] == 50
    assert [path for path, _ in site.seen] == ["/1", "/2", "/3", "/a.png"]

    site.answers["/0"] = (302, {"Location": "/1"}, b"")
    assert "more than 3 redirects" in refused_at_home(site.url("/0"))


@pytest.mark.parametrize("host", ["127.0.0.2", "[::1]", "localhost", "0.0.0.0"])
def test_no_redirect_leads_inside(site: Site, host: str) -> None:
    """Home is outside here; every other address of this machine is inside."""
    site.answers["/1"] = (302, {"Location": site.url("/a.png", host)}, b"")
    outside = {"pictures.test": ["127.0.0.1"], "localhost": ["127.0.0.3"]}
    message = refused(
        site.url("/1"), resolve=lambda name, port: outside.get(name) or resolve(name, port), allowed=is_home
    )
    assert "does not lead to the public internet" in message
    assert [path for path, _ in site.seen] == ["/1"]


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://pictures.test/a", "http://[", "http://u:p@a.test/"])
def test_no_redirect_leads_to_something_else(site: Site, location: str) -> None:
    site.answers["/1"] = (302, {"Location": location}, b"")
    refused_at_home(site.url("/1"))
    assert [path for path, _ in site.seen] == ["/1"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, {"Content-Type": "image/png"}, b""), "answers 404"),
        ((200, {"Content-Type": "text/html"}, PICTURE), "does not call it a picture"),
        ((200, {}, PICTURE), "does not call it a picture"),
        ((200, {"Content-Type": "image/png", "Content-Encoding": "gzip"}, PICTURE), "compresses it"),
        ((200, {"Content-Type": "image/png"}, b"<html>"), "what is there is not a PNG"),
        ((200, {"Content-Type": "image/png"}, png(declared=(40000, 40000))), "40000x40000"),
        ((200, {"Content-Type": "image/png", "Content-Length": "99999"}, PICTURE), "not well formed"),
    ],
)
def test_answers_that_are_no_picture(site: Site, answer: tuple[int, dict[str, str], bytes], reason: str) -> None:
    site.answers["/x"] = answer
    assert reason in refused_at_home(site.url("/x"))


def test_an_answer_that_is_too_large(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_images, "MAX_IMAGE_BYTES", 100_000)
    site.answers["/x"] = (200, {"Content-Type": "image/png"}, PICTURE + bytes(5_000_000))
    assert "is larger than" in refused_at_home(site.url("/x"))


def test_an_answer_that_takes_too_long(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_images, "FETCH_SECONDS", 0.0)
    assert "takes longer" in refused_at_home(site.url("/a.png"))


def test_a_server_that_is_not_there() -> None:
    assert "the connection fails" in refused_at_home("http://pictures.test:1/a.png")
    assert "the host is not known" in refused("http://x.test/", resolve=lambda host, port: [])


def test_no_proxy_of_the_environment_is_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert fetch(PLACE, site.url("/a.png"), resolve=home, allowed=is_home)[1] == 50


def test_the_certificate_must_be_that_of_the_name(secure_site: Site, certificate: Path) -> None:
    tls = ssl.create_default_context(cafile=certificate)
    url = secure_site.url("/a.png", scheme="https")
    assert fetch(PLACE, url, resolve=home, allowed=is_home, tls=tls)[1] == 50
    other = secure_site.url("/a.png", "other.test", scheme="https")
    assert "the connection fails" in refused(other, resolve=home, allowed=is_home, tls=tls)
    assert "the connection fails" in refused_at_home(url)
    secure_site.answers["/1"] = (302, {"Location": "http://pictures.test/"}, b"")
    message = refused(secure_site.url("/1", scheme="https"), resolve=home, allowed=is_home, tls=tls)
    assert "unprotected http" in message


def test_a_server_that_drips(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, the whole never would."""
    monkeypatch.setattr(remote_images, "FETCH_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            line, _ = server.accept()
            with line:
                line.recv(4096)
                try:
                    while True:
                        line.sendall(b"H")
                        time.sleep(0.05)
                except OSError:
                    pass

        thread = threading.Thread(target=drip)
        thread.start()
        message = refused_at_home(f"http://pictures.test:{server.getsockname()[1]}/a.png")
        assert "longer than" in message or "takes too long" in message
        thread.join(10)
        assert not thread.is_alive()
