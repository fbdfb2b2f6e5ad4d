"""The registry of providers: keys, discovery in the background, and what is written down."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemonade.engines.cloud import providers as module
from lemonade.engines.cloud.failures import AuthConflict, InsecureHTTP, ProviderNotFound
from lemonade.engines.cloud.providers import Providers
from lemonade.errors import InvalidArgument, Offline
from tests.engines.cloud.world import installed, settings_in
from tests.engines.fake_provider import MODELS, FakeProvider

KEY = "ck-right-key"


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(KEY) as one:
        yield one


def entry(fake: FakeProvider, **more: Any) -> dict[str, Any]:
    return {"name": "afar", "base_url": fake.url, "allow_insecure_http": True, **more}


async def settled(providers: Providers) -> None:
    """Until nothing runs in the background."""
    async with asyncio.timeout(10):
        while any(state.task for state in providers._states.values()):
            await asyncio.sleep(0.01)


async def test_install_discovers_and_keeps_everything_but_the_key(tmp_path: Path, fake: FakeProvider) -> None:
    async with installed(tmp_path, fake) as providers:
        assert set(providers.models()) == {f"afar.{name}" for name in MODELS}
        assert providers.auth_state("afar") == {"env_var_set": False, "runtime_key_set": True}
        text = (tmp_path / "config.json").read_text()
    assert json.loads(text)["cloud_providers"] == [{**entry(fake), "wire_format": "openai"}]
    assert KEY not in text


async def test_what_is_left_out_stays(tmp_path: Path, fake: FakeProvider) -> None:
    async with installed(tmp_path, fake, auth_header_name="Authorization") as providers:
        provider, found = await providers.install({"name": "afar", "auth_header_prefix": "Bearer "})
        assert provider.base_url == fake.url
        assert provider.auth_header_name == "Authorization"
        assert found == len(MODELS)
        with pytest.raises(InsecureHTTP):
            await providers.install({"name": "afar", "allow_insecure_http": False})
        assert providers.get("afar") == provider


async def test_a_key_of_the_environment_counts_more(tmp_path: Path, fake: FakeProvider) -> None:
    settings = settings_in(tmp_path, cloud_providers=[entry(fake, name="a-far")])
    providers = Providers(settings, {"LEMONADE_A_FAR_API_KEY": f" {KEY}\n"})
    assert providers.auth_state("a-far") == {"env_var_set": True, "runtime_key_set": False}
    with pytest.raises(AuthConflict) as conflict:
        await providers.authenticate("a-far", "ck-another-key")
    assert conflict.value.details == {"env_var": "LEMONADE_A_FAR_API_KEY"}
    assert "ck-another-key" not in str(conflict.value.body())
    assert await providers.install({"name": "a-far"}, "ck-another-key") is not None
    assert fake.last["headers"]["authorization"] == f"Bearer {KEY}"
    assert providers.clear("a-far")
    assert providers.models(), "the one of the environment is still there"
    await providers.close()


async def test_a_variable_that_holds_no_key_is_overlooked(
    tmp_path: Path, fake: FakeProvider, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lemonade.cloud"):
        providers = Providers(settings_in(tmp_path), {"LEMONADE_AFAR_API_KEY": "schlüssel CANARY"})
    assert providers.key("afar") is None
    assert "LEMONADE_AFAR_API_KEY" in caplog.text
    assert "CANARY" not in caplog.text


async def test_clearing_a_key_takes_the_models_away(tmp_path: Path, fake: FakeProvider) -> None:
    async with installed(tmp_path, fake) as providers:
        version = providers.version
        assert providers.clear("afar")
        assert not providers.clear("afar")
        assert providers.models() == {}
        assert providers.version > version
        assert providers.hint("afar.good") == (
            "No API key for cloud provider 'afar'. Set the LEMONADE_AFAR_API_KEY environment variable or POST "
            "/v1/cloud/auth."
        )
        asked = len(fake.requests)
        await settled(providers)
        assert len(fake.requests) == asked, "nothing is asked without a key that was taken away"
        assert await providers.authenticate("afar", KEY) == len(MODELS)
    assert providers.clear("nobody") is False


async def test_uninstalling(tmp_path: Path, fake: FakeProvider) -> None:
    async with installed(tmp_path, fake) as providers:
        assert providers.uninstall("afar") == len(MODELS)
        assert providers.models() == {}
        assert providers.key("afar") is None
        assert "cloud_providers" not in json.loads((tmp_path / "config.json").read_text())
        for ask in (providers.get, providers.connection, providers.uninstall):
            with pytest.raises(ProviderNotFound, match="Cloud provider 'afar' is not installed"):
                ask("afar")
        with pytest.raises(ProviderNotFound):
            await providers.authenticate("afar", KEY)


async def test_two_providers(tmp_path: Path, fake: FakeProvider) -> None:
    with FakeProvider(KEY) as other:
        other.rows = ["nonsense", {"id": "only"}]
        async with installed(tmp_path, fake, other) as providers:
            assert [each.name for each in providers.all()] == ["afar", "afar1"]
            assert "afar1.only" in providers.models()
            providers.uninstall("afar")
            assert set(providers.models()) == {"afar1.only"}


async def test_a_provider_without_keys(tmp_path: Path) -> None:
    with FakeProvider(None) as fake:
        async with installed(tmp_path, fake, key=None) as providers:
            assert len(providers.models()) == len(MODELS)
            assert "authorization" not in fake.last["headers"]


async def test_keys_go_only_to_their_provider(tmp_path: Path, fake: FakeProvider) -> None:
    with FakeProvider(None) as other:
        async with installed(tmp_path, fake) as providers:
            await providers.install(entry(other, name="keyless"))
        assert all("authorization" not in one["headers"] for one in other.requests)


# Discovery.


async def test_a_look_never_waits(tmp_path: Path, fake: FakeProvider) -> None:
    fake.listing = "hang"
    providers = Providers(settings_in(tmp_path, cloud_providers=[entry(fake)]), {"LEMONADE_AFAR_API_KEY": KEY})
    before = time.monotonic()
    providers.start()
    for _ in range(100):
        assert providers.models() == {}
        await asyncio.sleep(0)
    assert time.monotonic() - before < 5
    await providers.close()
    assert len(fake.requests) <= 1


async def test_start_discovers_beside(tmp_path: Path, fake: FakeProvider) -> None:
    providers = Providers(settings_in(tmp_path, cloud_providers=[entry(fake)]), {"LEMONADE_AFAR_API_KEY": KEY})
    providers.start()
    assert providers.models() == {}
    await settled(providers)
    assert len(providers.models()) == len(MODELS)
    await providers.close()


async def test_who_asks_for_a_model_right_after_a_start_waits_for_the_list(tmp_path: Path, fake: FakeProvider) -> None:
    providers = Providers(settings_in(tmp_path, cloud_providers=[entry(fake)]), {"LEMONADE_AFAR_API_KEY": KEY})
    await providers.settle("local")
    assert fake.requests == []
    await providers.settle("afar.good")
    assert "afar.good" in providers.models()
    await providers.close()


@pytest.mark.parametrize(
    ("listing", "says"),
    [
        ("fail", "it answered 500"),
        ("page", "no JSON (text/html)"),
        ("nested", "no JSON (application/json)"),
        ("hang", "did not list its models within"),
    ],
)
async def test_a_list_that_cannot_be_had(
    tmp_path: Path,
    fake: FakeProvider,
    listing: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "DISCOVERY", 0.5)
    fake.listing = listing
    with caplog.at_level(logging.WARNING, "lemonade.cloud"):
        async with installed(tmp_path, fake) as providers:
            assert says in providers.problem("afar")
            assert providers.models() == {}
    assert says in caplog.text


async def test_what_was_known_stays_while_a_provider_cannot_be_reached(
    tmp_path: Path, fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with installed(tmp_path, fake) as providers:
        monkeypatch.setattr(module, "DISCOVERY", 0.3)
        fake.listing = "hang"
        await providers._discover(providers._state("afar"))
        assert providers.problem("afar")
        assert len(providers.models()) == len(MODELS)
        fake.listing = "fail"
        await providers._discover(providers._state("afar"))
        assert providers.models() == {}, "it answered, and has none"


async def test_an_old_list_is_asked_for_again_when_somebody_looks(
    tmp_path: Path, fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRESH", 0.0)
    async with installed(tmp_path, fake) as providers:
        fake.rows = {"data": [{"id": "new"}]}
        providers.models()
        await settled(providers)
        assert set(providers._models) == {"afar.new"}


async def test_offline_asks_nobody(tmp_path: Path, fake: FakeProvider) -> None:
    settings = settings_in(tmp_path, cloud_providers=[entry(fake)], offline=True)
    providers = Providers(settings, {"LEMONADE_AFAR_API_KEY": KEY})
    providers.start()
    await settled(providers)
    assert providers.models() == {}
    with pytest.raises(Offline):
        providers.connection("afar")
    assert fake.requests == []
    settings.change({"offline": False}, persist=False)
    providers.models()
    await settled(providers)
    assert len(providers.models()) == len(MODELS)
    await providers.close()


async def test_what_somebody_wrote_by_hand(
    tmp_path: Path, fake: FakeProvider, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [{"name": "Bad!"}, {"name": "x", "base_url": "http://x"}, {}]
    with caplog.at_level(logging.WARNING, "lemonade.cloud"):
        providers = Providers(settings_in(tmp_path, cloud_providers=[*bad, entry(fake)]), {})
    assert [each.name for each in providers.all()] == ["afar"]
    assert [f"cloud_providers[{number}]" in caplog.text for number in range(4)] == [True, True, True, False]


def test_a_key_in_the_file_is_neither_used_nor_shown(tmp_path: Path, fake: FakeProvider) -> None:
    settings = settings_in(tmp_path, cloud_providers=[entry(fake, api_key="ck-CANARY-2")])
    assert settings["cloud_providers"] == []
    assert "must not hold a key ('api_key')" in settings.problems[0]
    assert "CANARY" not in str(settings.problems) + str(settings.snapshot())


@pytest.mark.parametrize("key", ["", "a b", "ck-CANARY\n2"])
async def test_what_is_no_key(tmp_path: Path, fake: FakeProvider, key: str) -> None:
    async with installed(tmp_path, fake) as providers:
        with pytest.raises(InvalidArgument):
            await providers.authenticate("afar", key)
        with pytest.raises(InvalidArgument):
            await providers.install(entry(fake, name="other"), key)
        assert [each.name for each in providers.all()] == ["afar"], "all or nothing"


async def test_anthropics_list(tmp_path: Path) -> None:
    with FakeProvider(KEY, wire="anthropic") as fake:
        async with installed(tmp_path, fake) as providers:
            assert len(providers.models()) == len(MODELS)
        assert fake.last["headers"]["x-api-key"] == KEY
        assert fake.last["headers"]["anthropic-version"] == "2023-06-01"
        assert "authorization" not in fake.last["headers"]


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody vouches for, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    made, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *names, "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    return made, key


@pytest.fixture
def secure(certificate: tuple[Path, Path]) -> Iterator[FakeProvider]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with FakeProvider(KEY, tls=context) as one:
        yield one


async def test_a_certificate_that_nobody_vouches_for_gets_no_key(tmp_path: Path, secure: FakeProvider) -> None:
    async with installed(tmp_path, secure, allow_insecure_http=False) as providers:
        assert "certificate" in providers.problem("afar").lower()
    assert secure.requests == []


async def test_a_certificate_of_ones_own_counts(
    tmp_path: Path, secure: FakeProvider, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    async with installed(tmp_path, secure, allow_insecure_http=False) as providers:
        assert providers.problem("afar") == ""
        assert len(providers.models()) == len(MODELS)


async def test_loopback_goes_around_proxies(
    tmp_path: Path, fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeProvider(None) as proxy:
        address = proxy.url.removesuffix("/v1")
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, address)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with installed(tmp_path, fake) as providers:
            assert len(providers.models()) == len(MODELS)
        assert proxy.requests == []
