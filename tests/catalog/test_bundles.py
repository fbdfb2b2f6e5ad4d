from __future__ import annotations

from typing import Any

import pytest

from lemonade.catalog.bundles import unbundle
from lemonade.errors import InvalidArgument
from lemonade.model import Model

HERE = {"Here": Model(name="Here", recipe="llamacpp", origin="user")}
ONE = {"id": "One", "recipe": "llamacpp", "checkpoint": "o/one:Q4_0", "downloaded": True, "created": 1}


def bundle(*models: Any, components: Any = ("One",), **more: Any) -> list[dict[str, Any]]:
    definition = {"model_name": "user.Kit", "recipe": "collection.omni", "components": list(components), **more}
    return unbundle({**definition, "models": list(models)}, HERE.get)


def test_only_what_defines_a_model_is_taken() -> None:
    one, kit = bundle(ONE)
    assert one == {"model_name": "user.One", "recipe": "llamacpp", "checkpoint": "o/one:Q4_0"}
    assert kit == {"model_name": "user.Kit", "recipe": "collection.omni", "components": ["user.One"]}


def test_what_is_here_stays_as_it_is() -> None:
    (kit,) = bundle({**ONE, "id": "Here"}, components=["Here"])
    assert kit["components"] == ["Here"]


def test_the_registry_is_inherited() -> None:
    assert bundle(ONE, source="modelscope")[0]["source"] == "modelscope"
    assert bundle({**ONE, "source": "huggingface"}, source="modelscope")[0]["source"] == "huggingface"


@pytest.mark.parametrize(
    "models",
    [
        [],
        [{"recipe": "llamacpp"}],
        [{"id": "One", "checkpoint": "o/n:Q4_0"}],
        [{"id": "One", "recipe": "llamacpp"}],
        [{"id": "One", "recipe": "collection.omni", "checkpoint": "o/n"}],
        ["One"],
    ],
)
def test_what_does_not_describe_the_component(models: list[Any]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        bundle(*models)
    assert caught.value.param == "models"


@pytest.mark.parametrize("components", ["One", [1], [""]])
def test_components_of_the_wrong_shape(components: Any) -> None:
    with pytest.raises(InvalidArgument):
        unbundle({"components": components, "models": [ONE]}, HERE.get)
