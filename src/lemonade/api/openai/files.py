"""`GET /v1/models/{id}/files`: what a model is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import NAME_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.errors import ModelLoadError, ModelNotFound
from lemonade.hub.store import shards
from lemonade.model import Checkpoint, Model


class FilesQuery(msgspec.Struct):
    """What to show."""

    include_paths: Annotated[
        str, Meta(description="`true` adds the absolute path of each file, which can tell user names.")
    ] = ""


class ModelFile(msgspec.Struct):
    """One file, or one folder."""

    name: Annotated[str, Meta(description="Its name without folders.")]
    role: Annotated[str, Meta(description="The checkpoint's role: `main`, `mmproj`, …")]
    size_bytes: Annotated[int, Meta(description="Bytes; a folder's are those of everything in it; 0 when missing.")]
    exists: Annotated[bool, Meta(description="Whether it is on the disk, whole.")]
    path: Annotated[str | None, Meta(description="Where it is, if paths were asked for.")] = None


class Files(msgspec.Struct):
    """The files of one model."""

    model_id: Annotated[str, Meta(description="The model's public id.")]
    files: Annotated[
        list[ModelFile],
        Meta(description="Per file `name`, `role`, `size_bytes`, `exists`, and `path` if asked; each shard by itself."),
    ]


async def files(exchange: Exchange, body: None) -> None:
    services = exchange.services
    model = _model(exchange)
    shown = []
    try:
        located_files = {} if model.recipe == "cloud" else services.store.locate(model)
        for role, located in located_files.items():
            for path in shards(located) if located else [_expected(exchange, model, role)]:
                shown.append(_describe(path, role, exists=located is not None))
    except OSError as error:
        failure = ModelLoadError(f"The files of '{exchange.id}' cannot be listed: {error}", requested=exchange.id)
        failure.status = 404
        raise failure from error
    if exchange.query.include_paths != "true":
        for each in shown:
            del each["path"]
    await exchange.json({"model_id": services.catalog.public_id(model), "files": shown})


def _model(exchange: Exchange) -> Model:
    """The model of the id; an alias is refused, because the answer is about the files of one model."""
    catalog = exchange.services.catalog
    found = catalog.find(exchange.id)
    if not any(catalog.lookup(name) for name in (exchange.id, exchange.id.removesuffix(":latest"))):
        raise ModelNotFound(
            f"'{exchange.id}' is an alias; ask for the files of '{catalog.public_id(found)}'.", requested=exchange.id
        )
    return found


def _expected(exchange: Exchange, model: Model, role: str) -> Path:
    """Where something that is missing would be: its own place, or the repository's."""
    text = model.checkpoints[role]
    if model.source:
        return exchange.services.store.models / text
    repository = Checkpoint.parse(text).repository
    for folder in exchange.services.store.folders(model):
        if folder.path.name.endswith(repository.replace("/", "--")):
            return folder.path
    return Path(text)


def _describe(path: Path, role: str, *, exists: bool) -> dict[str, Any]:
    size = 0
    if exists:
        inside = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
        size = sum(each.stat().st_size for each in inside)
    return {"name": path.name, "path": str(path), "role": role, "size_bytes": size, "exists": exists}


FILES = Endpoint(
    id="openai.models_id_files",
    method="GET",
    path="/models/{id}/files",
    summary="List the files of one model",
    description="An alias is not understood here; ask for its target.",
    query=FilesQuery,
    response=Files,
    errors=(*NAME_ERRORS, ErrorRow(404, "model_load_error", "The files cannot be listed.")),
    handler=files,
)
