"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import NAME_ERRORS, Endpoint
from lemonade.api.exchange import Exchange

if TYPE_CHECKING:
    from lemonade.api.services import Services
    from lemonade.catalog.entry import Entry

#: `created` of every model. Source: the specification, which fixes it for OpenAI's clients.
CREATED = 1234567890
#: How deep collections show the objects of their components.
MAX_DEPTH = 3
#: What providers tell of their models.
CLOUD_FACTS = (
    "context_length",
    "max_output_tokens",
    "max_completion_tokens",
    "cloud_provider",
    "cost_input_per_million",
    "cost_output_per_million",
)


class ModelsQuery(msgspec.Struct):
    """What to list."""

    show_all: Annotated[str, Meta(description="`true` also lists models of the catalog that are not downloaded.")] = ""
    include_paths: Annotated[
        str, Meta(description="`true` adds the absolute path of each present checkpoint, which can tell user names.")
    ] = ""


class ModelQuery(msgspec.Struct):
    """What to show."""

    include_paths: Annotated[
        str, Meta(description="`true` adds the absolute path of each present checkpoint, which can tell user names.")
    ] = ""


class ModelObject(msgspec.Struct):
    """A model."""

    id: Annotated[str, Meta(description="The name for requests.")]
    created: Annotated[int, Meta(description="Always 1234567890.")]
    object: Annotated[str, Meta(description="Always `model`.")]
    owned_by: Annotated[str, Meta(description="Always `lemonade`.")]
    checkpoint: Annotated[str, Meta(description="The main checkpoint in the model's registry.")]
    checkpoints: Annotated[dict[str, str], Meta(description="Every checkpoint by role.")]
    checkpoint_status: Annotated[
        list[dict[str, Any]],
        Meta(description="Per role: `type`, `present`, `required`, `registry`, and `path` if asked."),
    ]
    recipe: Annotated[str, Meta(description="How the model runs, such as `llamacpp`.")]
    labels: Annotated[list[str], Meta(description="What the model can do.")]
    downloaded: Annotated[bool, Meta(description="Whether everything that it needs is on the disk.")]
    update_available: Annotated[bool, Meta(description="Whether the registry is known to have newer files.")]
    suggested: Annotated[bool, Meta(description="Whether the model is recommended for general use.")]
    components: Annotated[list[str], Meta(description="A collection's component models; else empty.")]
    source: Annotated[str, Meta(description="The registry, or the kind of local files.")]
    registry_source: Annotated[str, Meta(description="The registry that it downloads from.")]
    recipe_options: Annotated[dict[str, Any], Meta(description="The model's own options: authored, then saved ones.")]
    size: Annotated[float | None, Meta(description="Size in GB; left out when unknown.")] = None
    max_context_window: Annotated[
        int | None, Meta(description="Largest context in tokens that the model supports.")
    ] = None
    context_length: Annotated[int | None, Meta(description="Tokens that one request may have.")] = None
    max_output_tokens: Annotated[
        int | None, Meta(description="Cloud models: the most tokens of one answer, when the provider tells.")
    ] = None
    max_completion_tokens: Annotated[int | None, Meta(description="The same under OpenAI's name.")] = None
    cloud_provider: Annotated[str | None, Meta(description="Cloud models: the provider that runs the model.")] = None
    cost_input_per_million: Annotated[
        float | None, Meta(description="Cloud models: USD per million tokens of input, when the provider tells.")
    ] = None
    cost_output_per_million: Annotated[
        float | None, Meta(description="Cloud models: USD per million tokens of output, when the provider tells.")
    ] = None
    models: Annotated[list[dict[str, Any]] | None, Meta(description="Omni collections: the components' objects.")] = (
        None
    )
    system_prompt: Annotated[str | None, Meta(description="Omni collections: the prompt that overrides ours.")] = None
    hashes: Annotated[
        dict[str, str] | None, Meta(description="Files to sha256, of models whose registry does not tell them itself.")
    ] = None
    version: Annotated[str | None, Meta(description="Router collections: version of the policy.")] = None
    routing: Annotated[dict[str, Any] | None, Meta(description="Router collections: the policy.")] = None


class ModelList(msgspec.Struct):
    """The models that can be asked for."""

    object: Annotated[str, Meta(description="Always `list`.")]
    data: Annotated[list[ModelObject], Meta(description="The models, in the order of their names.")]


class Listing:
    """The encoded answers of `GET /v1/models`, made anew only after something that they show has changed."""

    def __init__(self) -> None:
        self._made: dict[tuple[bool, bool], tuple[Any, bytes]] = {}

    def encoded(self, services: Services, *, show_all: bool, include_paths: bool) -> bytes:
        entries = services.catalog.listed(show_all=show_all)
        # What is loaded, and with which context, shows in `context_length`.
        loaded = tuple(
            (one.key, one.options.get("ctx_size"), one.launch.context, _stretched(one.launch.argv))
            for one in services.residency.residents()
        )
        stamp = (services.catalog.version, loaded, services.settings["ctx_size"])
        key = (show_all, include_paths)
        if (made := self._made.get(key)) and made[0] == stamp:
            return made[1]
        data = [describe(services, entry, include_paths=include_paths) for entry in entries]
        body = msgspec.json.encode({"object": "list", "data": data})
        self._made[key] = (stamp, body)
        return body


def describe(services: Services, entry: Entry, *, include_paths: bool = False, depth: int = 0) -> dict[str, Any]:
    """The model object of the wire."""
    model = entry.model
    shown: dict[str, Any] = {
        "id": entry.id,
        "created": CREATED,
        "object": "model",
        "owned_by": "lemonade",
        "checkpoint": model.checkpoint,
        "recipe": model.recipe,
    }
    if entry.size:
        shown["size"] = entry.size
    if entry.max_context_window:
        shown["max_context_window"] = entry.max_context_window
    if context := _context_length(services, entry):
        shown["context_length"] = context
    shown |= {
        "downloaded": entry.downloaded,
        "update_available": entry.update_available,
        "suggested": model.suggested,
        "labels": model.labels,
        "components": entry.components,
        "checkpoints": model.checkpoints,
        "checkpoint_status": [
            {
                "type": status.type,
                "present": status.present,
                "required": status.required,
                "registry": status.registry,
                **({"path": str(status.path)} if include_paths and status.present and status.path else {}),
            }
            for status in entry.checkpoint_status
        ],
        "source": entry.source,
        "registry_source": model.registry,
        "recipe_options": entry.recipe_options,
    }
    if model.recipe == "cloud":
        shown |= {key: model.extras[key] for key in CLOUD_FACTS if key in model.extras}
    if model.recipe == "collection.omni" and depth < MAX_DEPTH:
        parts = (services.catalog.entry_or_none(name) for name in entry.components)
        shown["models"] = [
            describe(services, part, include_paths=include_paths, depth=depth + 1) for part in parts if part is not None
        ]
    if model.system_prompt:
        shown["system_prompt"] = model.system_prompt
    if model.hashes:
        shown["hashes"] = model.hashes
    if model.recipe == "collection.router":
        shown |= {key: model.extras[key] for key in ("version", "routing") if key in model.extras}
    return shown


def _stretched(argv: Sequence[str]) -> bool:
    """Whether an engine was told to make more of the model's context than it was made for."""
    return any(word.startswith(("--rope-", "--yarn-")) for word in argv)


def _context_length(services: Services, entry: Entry) -> int | None:
    """The loaded context size, else the configured one, else the model's own window."""
    for resident in services.residency.residents():
        if resident.key == entry.model.canonical:
            running = resident.launch.context or resident.options.get("ctx_size")
            if isinstance(running, int) and running > 0:
                # Beyond what the model was made for llama.cpp refuses prompts, whatever the context is.
                window = None if _stretched(resident.launch.argv) else entry.max_context_window
                return min(running, window or running)
    configured = entry.recipe_options.get("ctx_size", services.settings["ctx_size"])
    if (
        isinstance(configured, int)
        and configured > 0
        and entry.model.recipe in ("llamacpp", "flm", "ryzenai-llm", "vllm")
    ):
        return configured
    return entry.max_context_window


async def models(exchange: Exchange, body: None) -> None:
    query: ModelsQuery = exchange.query
    await exchange.reply(
        exchange.services.model_listing.encoded(
            exchange.services, show_all=query.show_all == "true", include_paths=query.include_paths == "true"
        )
    )


async def model(exchange: Exchange, body: None) -> None:
    await exchange.services.providers.settle(exchange.id)
    entry = exchange.services.catalog.entry(exchange.id)
    await exchange.json(describe(exchange.services, entry, include_paths=exchange.query.include_paths == "true"))


MODELS = Endpoint(
    id="openai.models",
    method="GET",
    path="/models",
    summary="List the models",
    description="Downloaded models, or with `show_all` the whole catalog. An alias is listed as a copy of its target.",
    query=ModelsQuery,
    response=ModelList,
    handler=models,
)
MODEL = Endpoint(
    id="openai.models_id",
    method="GET",
    path="/models/{id}",
    summary="Read one model",
    description=(
        "The id may hold slashes; an alias, a prefix (`user.`, `extra.`, `builtin.`) and `:latest` are understood."
    ),
    query=ModelQuery,
    response=ModelObject,
    errors=NAME_ERRORS,
    handler=model,
)
