"""Engines: `POST /v1/install`, `POST /v1/uninstall`, `POST /v1/install/dry-run`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.lemonade import cloud
from lemonade.api.lemonade.pull import report
from lemonade.api.storage import STORAGE_ERROR
from lemonade.errors import MissingArgument

if TYPE_CHECKING:
    from lemonade.engines.engine import Build, Wheels

_RELEASE_ERRORS = (
    ErrorRow(400, "unsupported_operation", "It cannot be installed, or would not run here; the message says why."),
    ErrorRow(404, "file_not_found", "The project has no such release, or the release no build for this machine."),
    ErrorRow(500, "integrity_error", "Nobody tells a hash of the archive, or what arrived has another one."),
    ErrorRow(502, "registry_unreachable", "The project's releases cannot be reached."),
    ErrorRow(502, "registry_error", "They answered with an error."),
)


class InstallRequest(cloud.InstallProvider, kw_only=True):
    """A backend of a recipe; or with the backend `cloud` a provider of models, of which what is left out stays as it
    was if it is installed already."""

    backend: Annotated[
        str, Meta(description="Such as `vulkan`; `GET /v1/system-info` lists them. `cloud` for a provider.")
    ]
    recipe: Annotated[str | UnsetType | None, Meta(description="Such as `llamacpp`. Not for `cloud`.")] = UNSET
    stream: Annotated[bool | UnsetType | None, Meta(description="`true` sends progress as server-sent events.")] = UNSET
    subscribe: Annotated[
        bool | UnsetType | None, Meta(description="With `stream`: `false` answers at once with the download job.")
    ] = UNSET
    force: Annotated[
        bool | UnsetType | None,
        Meta(description="Also what this machine is thought not to run, and again what is installed already."),
    ] = UNSET


class UninstallRequest(msgspec.Struct):
    """A backend of a recipe, or a cloud provider."""

    backend: Annotated[str, Meta(description="Such as `vulkan`; `cloud` for a provider.")]
    recipe: Annotated[str | UnsetType | None, Meta(description="Such as `llamacpp`. Not for `cloud`.")] = UNSET
    provider: Annotated[str | UnsetType | None, Meta(description="Cloud: the provider's name.")] = UNSET


class DryRunRequest(msgspec.Struct):
    """A backend of a recipe, for this or another machine."""

    recipe: Annotated[str, Meta(description="Such as `llamacpp`.")]
    backend: Annotated[str, Meta(description="Such as `vulkan`.")]
    arch: Annotated[str | UnsetType | None, Meta(description="`x86_64` or `arm64`; this machine's when left out.")] = (
        UNSET
    )


class BackendResponse(msgspec.Struct):
    """It is done."""

    status: Annotated[str, Meta(description="Always `success`.")]
    recipe: Annotated[str, Meta(description="The recipe.")]
    backend: Annotated[str, Meta(description="The backend.")]


class DryRunResponse(msgspec.Struct):
    """What an installation would fetch; empty strings when nothing, as the engine is here by other means."""

    recipe: Annotated[str, Meta(description="The recipe.")]
    backend: Annotated[str, Meta(description="The backend.")]
    arch: Annotated[str, Meta(description="As asked for, `` for this machine.")]
    repo: Annotated[str, Meta(description="The project.")]
    version: Annotated[str, Meta(description="The tag of the release.")]
    filename: Annotated[str, Meta(description="The archive with the program.")]
    url: Annotated[str, Meta(description="Where it is.")]
    files: Annotated[list[str], Meta(description="All archives.")]
    hashes: Annotated[dict[str, str], Meta(description="The sha256 that each must have, as far as it is known yet.")]
    supports_split_archive: Annotated[bool, Meta(description="Whether there are several archives.")]
    supported: Annotated[bool, Meta(description="Whether this machine is thought to run it.")]


async def install(exchange: Exchange, body: InstallRequest) -> None:
    if body.backend == "cloud":
        await cloud.install(exchange, body)
        return
    services = exchange.services
    job = services.installer.install(_recipe(body), body.backend, force=body.force is True)
    if body.stream is True and body.subscribe is False and job is not None:
        await exchange.json(job.snapshot())
    elif body.stream is True:
        await report(exchange, job)
    else:
        if job is not None:
            await job.wait()
        await _done(exchange, body)


async def uninstall(exchange: Exchange, body: UninstallRequest) -> None:
    if body.backend == "cloud":
        await cloud.uninstall(exchange, body.provider)
        return
    services = exchange.services
    recipe = _recipe(body)
    services.engines.known(recipe, body.backend)
    for job in services.downloads.jobs():
        if job.id == f"backend:{recipe}:{body.backend}":
            job.cancel()
            services.downloads.remove(job)
    for resident in services.residency.residents():
        if resident.model.recipe == recipe and resident.launch.backend == body.backend:
            await services.residency.unload(resident.model)
    await asyncio.to_thread(services.installer.uninstall, recipe, body.backend)
    services.catalog.changed()
    await _done(exchange, body)


def _recipe(body: InstallRequest | UninstallRequest) -> str:
    if not isinstance(body.recipe, str):
        raise MissingArgument("recipe")
    return body.recipe


async def _done(exchange: Exchange, body: InstallRequest | UninstallRequest) -> None:
    await exchange.json({"status": "success", "recipe": body.recipe, "backend": body.backend})


async def dry_run(exchange: Exchange, body: DryRunRequest) -> None:
    services = exchange.services
    arch = body.arch if isinstance(body.arch, str) else ""
    build, release = await asyncio.to_thread(services.installer.plan, body.recipe, body.backend, arch)
    state = services.engines.backend(body.recipe, body.backend)
    answer = {
        "recipe": body.recipe,
        "backend": body.backend,
        "arch": arch,
        **_files(build),
        "supported": bool(arch) or state.state != "unsupported",
    }
    if release is not None:
        answer |= {
            "version": release.tag,
            "filename": release.archives[0].file.path,
            "url": release.archives[0].url,
            "files": [archive.file.path for archive in release.archives],
            "hashes": {archive.file.path: archive.file.sha256 for archive in release.archives},
        }
    await exchange.json(answer)


def _files(build: Build | Wheels | None) -> dict[str, Any]:
    from lemonade.engines.engine import Build
    from lemonade.hub.releases import Releases, choose

    if not isinstance(build, Build):
        # pip finds out where packages are, and what their hashes are.
        packages = list(build.packages) if build is not None else []
        shown = {"version": build.tag, "filename": packages[0]} if build is not None else {}
        empty = dict.fromkeys(("repo", "version", "filename", "url"), "")
        return {**empty, **shown, "files": packages, "hashes": {}, "supports_split_archive": len(packages) > 1}
    names = choose(build.files, build.tag, list(build.hashes)) or []
    return {
        "repo": build.repository,
        "version": build.tag,
        "filename": names[0] if names else "",
        "url": Releases().url(build.repository, build.tag, names[0]) if names else "",
        "files": names,
        "hashes": {name: build.hashes[name] for name in names},
        "supports_split_archive": len(build.files) > 1,
    }


INSTALL = Endpoint(
    id="lemonade.install",
    method="POST",
    path="/install",
    summary="Install an engine",
    description=(
        "Fetches a released program, or has pip fetch packages, compares it with its sha256, and unpacks it into the "
        "daemon's cache. What is installed already, or comes with a package, is done at once. Two callers share one "
        "download, and it goes on when they leave. The backend `cloud` adds a provider of models, or changes it, and "
        "lists its models; the answer is as that of `GET /v1/cloud`, with `warnings` if anything is not as it should "
        "be."
    ),
    body=InstallRequest,
    response=BackendResponse,
    streams=True,
    errors=(
        *_RELEASE_ERRORS,
        ErrorRow(400, "lemond_offline", "The daemon is in offline mode."),
        ErrorRow(400, "insecure_http_requires_opt_in", "Cloud: `base_url` is plain http, and nobody consents."),
        ErrorRow(500, "archive_refused", "The archive holds what no honest one would; nothing was unpacked."),
        ErrorRow(500, "not_enough_space", "The disk is too full."),
        ErrorRow(500, "download_cancelled", "Somebody cancelled the download."),
        STORAGE_ERROR,
    ),
    changes=True,
    handler=install,
)
UNINSTALL = Endpoint(
    id="lemonade.uninstall",
    method="POST",
    path="/uninstall",
    summary="Remove an engine that was installed",
    description=(
        "Unloads the models that run on it first. Removes what `POST /v1/install` fetched and nothing else, so it "
        "succeeds when there is nothing. "
        "A cloud provider goes with its key and its models."
    ),
    body=UninstallRequest,
    response=BackendResponse,
    errors=(cloud.NOT_INSTALLED, STORAGE_ERROR),
    changes=True,
    handler=uninstall,
)
DRY_RUN = Endpoint(
    id="lemonade.install_dry_run",
    method="POST",
    path="/install/dry-run",
    summary="See what installing an engine would fetch",
    body=DryRunRequest,
    response=DryRunResponse,
    errors=_RELEASE_ERRORS,
    handler=dry_run,
)
