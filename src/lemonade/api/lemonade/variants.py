"""`GET /v1/pull/variants`: what a repository offers."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import INVALID_ARGUMENT, MISSING_ARGUMENT, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.catalog.rows import REGISTRIES
from lemonade.errors import FileNotInRepository, InvalidArgument, MissingArgument
from lemonade.hub import address
from lemonade.hub.layout import check_repository
from lemonade.hub.peek import peek
from lemonade.hub.registry import Listing, Registry
from lemonade.hub.selection import is_companion, variants
from lemonade.model import Model

#: Larger files are no manifests of collections.
MAX_MANIFEST = 5 << 20

REGISTRY_ERRORS = (
    ErrorRow(400, "lemond_offline", "The daemon is in offline mode."),
    ErrorRow(403, "repository_gated", "The repository asks for terms to be accepted, or for another token."),
    ErrorRow(404, "repository_not_found", "The registry has no such repository, or the token cannot see it."),
    ErrorRow(502, "registry_unreachable", "The registry cannot be reached."),
    ErrorRow(502, "registry_error", "The registry answered with an error."),
)


class VariantsQuery(msgspec.Struct):
    """The repository."""

    checkpoint: Annotated[str, Meta(description="`OWNER/NAME`, or its address on a hub.")] = ""
    source: Annotated[str, Meta(description="`huggingface` or `modelscope`; else the setting.")] = ""


class Offered(msgspec.Struct):
    """One variant."""

    name: Annotated[str, Meta(description="Its quantisation, or its file or folder.")]
    primary_file: Annotated[str, Meta(description="The file to open.")]
    files: Annotated[list[str], Meta(description="All of its files.")]
    sharded: Annotated[bool, Meta(description="Whether it is split over several files.")]
    size_bytes: Annotated[int, Meta(description="Bytes of all of its files.")]


class Variants(msgspec.Struct):
    """What a repository offers, and how it would be registered."""

    checkpoint: Annotated[str, Meta(description="The repository.")]
    source: Annotated[str, Meta(description="The registry.")]
    recipe: Annotated[str, Meta(description="How it runs.")]
    repo_kind: Annotated[str, Meta(description="`gguf`, `onnx-ryzenai` or `collection`.")]
    suggested_name: Annotated[str, Meta(description="A name, without `user.`.")]
    suggested_labels: Annotated[list[str], Meta(description="Labels, guessed from names.")]
    mmproj_files: Annotated[list[str], Meta(description="Vision projectors.")]
    draft_files: Annotated[list[str], Meta(description="Draft models.")]
    variants: Annotated[
        list[Offered], Meta(description="The variants, the usual ones first: name, files, size in bytes.")
    ]
    component_count: Annotated[int | None, Meta(description="Collections: how many models.")] = None
    size: Annotated[float | None, Meta(description="Collections: GB of all of them.")] = None


async def offered(exchange: Exchange, body: None) -> None:
    services = exchange.services
    source, repository = _repository(exchange)
    registry = services.downloads.registry(Model(name=repository, recipe="", registry=source))
    listing = await asyncio.to_thread(registry.listing, repository)
    answer = {"checkpoint": repository, "source": source, "suggested_name": repository.rpartition("/")[2]}
    await exchange.json(answer | await asyncio.to_thread(_describe, registry, listing))


def _repository(exchange: Exchange) -> tuple[str, str]:
    query: VariantsQuery = exchange.query
    if not query.checkpoint:
        raise MissingArgument("checkpoint", "Missing required query parameter 'checkpoint'")
    source = query.source and REGISTRIES.get(query.source, "")
    if source not in ("", "huggingface", "modelscope"):
        source = ""
    if query.source and not source:
        raise InvalidArgument(
            f"Unsupported model source '{query.source[:100]}' (expected 'huggingface' or 'modelscope')", param="source"
        )
    repository = query.checkpoint
    if read := address.read(repository):
        if source and source != read.registry:
            raise InvalidArgument(f"'checkpoint' is on {read.registry}, but 'source' says {source}.", param="source")
        source, repository = read.registry, read.repository
    source = source or str(exchange.services.settings["default_model_source"])
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise InvalidArgument(
            "Malformed 'checkpoint': expected a repository id of the form 'owner/name'", param="checkpoint"
        )
    check_repository(source, repository)
    return source, repository


def _describe(registry: Registry, listing: Listing) -> dict[str, Any]:
    names = [file.path for file in listing.files]
    name = listing.repository.rpartition("/")[2]
    if any(each.lower().endswith(".gguf") for each in names):
        return _gguf(listing, names)
    if any(each.endswith(".onnx") for each in names) and any(each.endswith("genai_config.json") for each in names):
        size = sum(max(file.size, 0) for file in listing.files)
        whole = Offered(name="default", primary_file="", files=names, sharded=False, size_bytes=size)
        return _answer("ryzenai-llm", "onnx-ryzenai", ["chat"], [whole])
    manifest = next((file for file in listing.files if file.path == f"{name}.json"), None)
    if manifest is not None and 0 <= manifest.size <= MAX_MANIFEST:
        return _collection(peek(registry, listing, manifest), name)
    raise FileNotInRepository(f"'{listing.repository}' has no GGUF file, nor anything else that runs here.")


def _gguf(listing: Listing, names: list[str]) -> dict[str, Any]:
    sizes = {file.path: max(file.size, 0) for file in listing.files}
    found = [
        Offered(
            name=variant.name,
            primary_file=variant.files[0],
            files=list(variant.files),
            sharded=variant.sharded,
            size_bytes=sum(sizes[file] for file in variant.files),
        )
        for variant in variants(names)
    ]
    projectors = [each for each in names if "mmproj" in each.lower() and each.lower().endswith(".gguf")]
    drafts = [
        each for each in names if each.lower().endswith(".gguf") and is_companion(each) and each not in projectors
    ]
    lower = listing.repository.lower()
    mode = "embeddings" if "embed" in lower else "reranking" if "rerank" in lower else "chat"
    labels = [mode, *(["vision"] if projectors and mode == "chat" else [])]
    return _answer("llamacpp", "gguf", labels, found) | {"mmproj_files": projectors, "draft_files": drafts}


def _collection(content: bytes, name: str) -> dict[str, Any]:
    try:
        manifest = json.loads(content)
        components = manifest["components"]
        if manifest["recipe"] != "collection.omni" or not components or not isinstance(components, list):
            raise ValueError("it lists no components")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileNotInRepository(f"'{name}.json' is no collection's manifest: {error}") from error
    answer = _answer("collection.omni", "collection", ["chat"], []) | {"component_count": len(components)}
    if isinstance(manifest.get("size"), int | float):
        answer["size"] = manifest["size"]
    return answer


def _answer(recipe: str, kind: str, labels: list[str], found: list[Offered]) -> dict[str, Any]:
    return {
        "recipe": recipe,
        "repo_kind": kind,
        "suggested_labels": labels,
        "mmproj_files": [],
        "draft_files": [],
        "variants": found,
    }


VARIANTS = Endpoint(
    id="lemonade.pull_variants",
    method="GET",
    path="/pull/variants",
    summary="Look at what a repository offers",
    description="Nothing is downloaded or registered.",
    query=VariantsQuery,
    response=Variants,
    errors=(
        MISSING_ARGUMENT,
        INVALID_ARGUMENT,
        *REGISTRY_ERRORS,
        ErrorRow(404, "file_not_found", "The repository has nothing that runs here."),
    ),
    handler=offered,
)
