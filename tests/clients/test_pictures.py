"""Pictures with OpenAI's libraries, by the engine itself and random weights."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.app.painting import ONE_THREAD, register
from tests.clients.environment import run_node
from tests.daemon import Daemon
from tests.engines.sdcpp.looking import file, opened, pixels, right_half
from tests.tiny_diffusion import tiny_diffusion

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def painter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("painter"), fake_engine=False, config={"sdcpp": ONE_THREAD}) as one:
        register(one, "Tiny", tiny_diffusion())
        yield one


@pytest.fixture(scope="module")
def client(painter: Daemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{painter.url}/v1", api_key="not needed", max_retries=0) as one:
        yield one


def upload(data: bytes, name: str = "picture.png") -> Any:
    made = io.BytesIO(data)
    made.name = name
    return made


def sizes(answer: Any) -> list[tuple[int, int]]:
    return [opened(picture.b64_json).size for picture in answer.data]


def test_generate(client: openai.OpenAI) -> None:
    answer = client.images.generate(
        model="Tiny",
        prompt="a red apple",
        n=2,
        size="40x24",
        quality="high",
        extra_body={"seed": 3},  # type: ignore[call-overload]
    )
    assert sizes(answer) == [(40, 24)] * 2
    assert answer.output_format == "png"
    assert answer.data[0].b64_json != answer.data[1].b64_json


def test_edit_with_a_list_and_a_mask(client: openai.OpenAI) -> None:
    answer = client.images.edit(
        model="Tiny",
        prompt="a tree",
        image=[upload(file()), upload(file(16, 16, "JPEG"), "other.jpg")],
        mask=upload(right_half()),
        extra_body={"steps": 3},
    )
    assert sizes(answer) == [(32, 32)]
    assert answer.data is not None
    assert answer.data[0].b64_json is not None
    change = abs(pixels(answer.data[0].b64_json) - pixels(file()))
    assert change[:, :16].mean() < 4 < 20 < change[:, 16:].mean()


def test_edit_of_one_picture(client: openai.OpenAI) -> None:
    answer = client.images.edit(model="Tiny", prompt="a tree", image=upload(file(24, 40)), n=2, user="me")
    assert sizes(answer) == [(24, 40)] * 2


def test_variation(client: openai.OpenAI) -> None:
    with pytest.deprecated_call():
        answer = client.images.create_variation(model="Tiny", image=upload(file()), response_format="b64_json")
    assert sizes(answer) == [(32, 32)]


def test_streams(client: openai.OpenAI) -> None:
    with client.images.generate(
        model="Tiny", prompt="a fox", stream=True, partial_images=1, extra_body={"steps": 3}
    ) as stream:
        partial, completed = stream
    assert partial.type == "image_generation.partial_image"
    assert partial.partial_image_index == 0
    assert completed.type == "image_generation.completed"
    assert completed.usage.total_tokens == 0
    assert opened(completed.b64_json).size == opened(partial.b64_json).size == (32, 32)
    with client.images.edit(model="Tiny", prompt="a fox", image=upload(file()), stream=True) as stream:
        (event,) = stream
    assert event.type == "image_edit.completed"


def test_errors_name_the_argument(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.images.generate(model="Tiny", prompt="a fox", response_format="url")
    assert (caught.value.code, caught.value.param) == ("invalid_argument", "response_format")
    with pytest.raises(openai.NotFoundError):
        client.images.generate(model="no-such-model", prompt="a fox")
    with pytest.raises(openai.BadRequestError):
        client.images.edit(model="Tiny", prompt="a fox", image=upload(b"no picture"))


def test_the_library_for_javascript(painter: Daemon, tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(file())
    (tmp_path / "mask.png").write_bytes(right_half())
    url = f"{painter.url}/v1"
    seen = run_node("pictures.mjs", url, str(tmp_path / "picture.png"), str(tmp_path / "mask.png"))
    for name, count in (("generate", 2), ("edit", 1), ("single", 1), ("variation", 1)):
        made = [opened(picture["b64_json"]).size for picture in seen[name]["data"]]
        assert made == [(32, 32)] * count, name
    kinds = [kind for kind, _ in seen["events"]]
    assert kinds == ["image_generation.partial_image", "image_generation.completed"]
    assert opened(seen["events"][-1][1]).size == (32, 32)
    assert seen["refused"] == {"name": "BadRequestError", "code": "invalid_argument", "param": "response_format"}
