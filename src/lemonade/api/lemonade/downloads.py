"""`GET /v1/downloads` and `POST /v1/downloads/control`: the downloads that the daemon makes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.errors import DownloadNotFound, InvalidArgument
from lemonade.hub.job import Job

ACTIONS = ("pause", "resume", "cancel", "remove")


class Download(msgspec.Struct):
    """One download. Sizes are in bytes."""

    id: Annotated[str, Meta(description="`model:NAME` or `backend:RECIPE:BACKEND`.")]
    type: Annotated[str, Meta(description="`model` or `backend`.")]
    model_name: Annotated[str, Meta(description="The model, or `RECIPE:BACKEND`.")]
    status: Annotated[str, Meta(description="`downloading`, `paused`, `cancelled`, `completed` or `error`.")]
    running: Annotated[bool, Meta(description="Whether the worker is at it; it may be about to stop.")]
    file: Annotated[str, Meta(description="The current file.")]
    file_index: Annotated[int, Meta(description="Its number, from 1.")]
    total_files: Annotated[int, Meta(description="How many there are.")]
    bytes_downloaded: Annotated[int, Meta(description="Of the current file.")]
    bytes_total: Annotated[int, Meta(description="Size of the current file.")]
    total_download_size: Annotated[int, Meta(description="Size of all files.")]
    bytes_previously_downloaded: Annotated[int, Meta(description="What was here before.")]
    completed_files_bytes: Annotated[int, Meta(description="Of the files that are done.")]
    cumulative_bytes_downloaded: Annotated[int, Meta(description="Of the files that are done and the current one.")]
    overall_bytes_downloaded: Annotated[int, Meta(description="The same.")]
    percent: Annotated[int, Meta(description="Of the current file.")]
    complete: Annotated[bool, Meta(description="Whether everything is here.")]
    rate: Annotated[int, Meta(description="Bytes per second over the last seconds.")]
    remaining: Annotated[float | None, Meta(description="Seconds that are left, `null` while that cannot be told.")]
    error: Annotated[str | None, Meta(description="Why it failed.")] = None
    code: Annotated[str | None, Meta(description="The failure's code.")] = None


class Controlled(msgspec.Struct):
    """What became of it. For all but `remove` the answer is the download itself."""

    status: Annotated[str, Meta(description="The download's, or `ok` when it was removed.")]
    missing: Annotated[bool, Meta(description="For `remove`: there was no such download.")] = False


class ControlRequest(msgspec.Struct):
    """A download, and what is to happen to it."""

    id: Annotated[str, Meta(description="The download's `id`.")]
    action: Annotated[
        str,
        Meta(
            extra_json_schema={"enum": list(ACTIONS)},
            description="`pause` keeps what came and `resume` goes on from there; `cancel` removes what came; `remove` "
            "takes an ended download off the list and cancels a running one.",
        ),
    ]


async def list_downloads(exchange: Exchange, body: None) -> None:
    await exchange.json([job.snapshot() for job in exchange.services.downloads.jobs()])


async def control(exchange: Exchange, body: ControlRequest) -> None:
    downloads = exchange.services.downloads
    if body.action not in ACTIONS:
        raise InvalidArgument("'action' must be 'pause', 'resume', 'cancel' or 'remove'.", param="action")
    job = _job(exchange, body.id)
    if body.action == "remove":
        if job is None:
            await exchange.json({"status": "ok", "missing": True})
            return
        if downloads.remove(job):
            await exchange.json({"status": "ok"})
            return
    if job is None:
        raise DownloadNotFound("Download not found", param="id")
    await exchange.json(_apply(exchange, job, body.action))


def _apply(exchange: Exchange, job: Job, action: str) -> dict[str, Any]:
    if action == "pause":
        job.pause()
    elif action == "cancel":
        job.cancel()
    elif action == "resume" and job.status not in ("completed", "downloading"):
        job = exchange.services.downloads.resume(job)
    return job.snapshot()


def _job(exchange: Exchange, wanted: str) -> Job | None:
    """The download of that id; the model in it may be named in any of its ways."""
    services = exchange.services
    if found := services.downloads.job(wanted):
        return found
    entry = services.catalog.entry_or_none(wanted.removeprefix("model:"))
    if entry is None:
        return None
    jobs = services.downloads.jobs()
    return next((job for job in jobs if job.model and job.model.canonical == entry.model.canonical), None)


DOWNLOADS = Endpoint(
    id="lemonade.downloads",
    method="GET",
    path="/downloads",
    summary="List the downloads",
    description="An array; a download that is complete is listed for another 30 seconds. They end with the daemon.",
    response=Download,
    response_is_array=True,
    handler=list_downloads,
)
CONTROL = Endpoint(
    id="lemonade.downloads_control",
    method="POST",
    path="/downloads/control",
    summary="Pause, resume, cancel or remove a download",
    description=(
        'Answers with the download, for `remove` with `{"status": "ok"}`. Pulling the model again also resumes a '
        "paused download."
    ),
    body=ControlRequest,
    response=Controlled,
    errors=(ErrorRow(404, "download_not_found", "There is no such download (`remove` succeeds anyway)."),),
    changes=True,
    handler=control,
)
