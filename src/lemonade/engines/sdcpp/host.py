"""stable-diffusion.cpp as a library: what `lemonade.engines.worker` runs for the bundled backends of `sd-cpp`."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import cyllama.sd as sd
import msgspec

from lemonade.engines.sdcpp import loras, protocol, raster
from lemonade.engines.sdcpp.telling import Tell, events, stamped, stopped_with
from lemonade.engines.worker import Job, Operation, Reply, progress
from lemonade.errors import EngineError, InvalidArgument, LemonadeError

#: stable-diffusion.cpp paints in squares of so many pixels; other sizes are cut out of the next larger one.
MULTIPLE = 8


def operations(config: dict[str, Any]) -> Mapping[str, Operation]:
    """Loads the model.

    Args:
        config: `context`, `picture`, `sampling`: attributes of the library's parameters; `lora_dir`.

    Raises:
        LemonadeError: it cannot be loaded.
    """
    params = sd.SDContextParams()
    # Version 0.2 frees the weights after the first picture, and loads no encoder, unless it is told otherwise; version
    # 0.7 has neither switch.
    for name in ("free_params_immediately", "vae_decode_only"):
        if hasattr(params, name):
            setattr(params, name, False)
    apply(params, config["context"])
    sd.set_log_callback(_log)
    # Else it draws bars.
    sd.set_progress_callback(lambda step, steps, seconds: None)
    try:
        context = sd.SDContext(params)
    except (RuntimeError, ValueError, OSError) as error:
        raise LemonadeError(f"stable-diffusion.cpp cannot load the model: {error}") from None
    return {protocol.GENERATE: Painter(context, config).generate}


class Painter:
    """Paints with one loaded model."""

    def __init__(self, context: Any, config: Mapping[str, Any]) -> None:
        self._context = context
        self._config = config
        #: What the parameters of the library only point at.
        self._pictures: list[Any] = []
        self._preview = sd.PreviewMode.TAE if "taesd_path" in config["context"] else sd.PreviewMode.VAE

    def generate(self, job: Job) -> dict[str, Any] | Reply:
        asked = _upright(protocol.painting(job.body))
        params = self._params(asked)
        if not asked.events:
            pictures = self._paint(job, asked, params, None)
            return {"created": int(time.time()), "data": pictures, "output_format": "png"}

        def compute(tell: Tell) -> None:
            pictures = self._paint(job, asked, params, tell)
            for picture in pictures:
                tell(protocol.COMPLETED, stamped({**picture, **_facts(asked), "usage": protocol.NO_USAGE}))

        return Reply(events(asked.events, compute), protocol.EVENTS)

    def _paint(self, job: Job, asked: protocol.Painting, params: Any, tell: Tell | None) -> list[dict[str, Any]]:
        stop = (lambda: self._context.cancel(sd.CancelMode.ALL)) if hasattr(self._context, "cancel") else None
        try:
            with self._telling(asked, tell), stopped_with(job, stop):
                made = self._context.generate_with_params(params)
        except RuntimeError as error:
            job.check()
            raise EngineError(f"stable-diffusion.cpp made no picture: {error}") from None
        finally:
            if stop is not None:
                self._context.cancel(sd.CancelMode.RESET)
        job.check()
        return [self._finished(asked, picture, asked.seed + number) for number, picture in enumerate(made)]

    def _finished(self, asked: protocol.Painting, picture: Any, seed: int) -> dict[str, Any]:
        pixels = raster.cut(picture.to_numpy(), asked.width, asked.height)
        info: dict[str, Any] = {"seed": seed, "steps": asked.steps, "cfg_scale": asked.cfg_scale}
        if asked.sampling_method:
            info["sampling_method"] = asked.sampling_method
        file = raster.png(pixels, _note(asked, info))
        return {"b64_json": base64.b64encode(file).decode(), "generation_info": info}

    def _params(self, asked: protocol.Painting) -> Any:
        """Raises InvalidArgument for what only the library knows."""
        prompt, named = loras.read(asked.prompt, self._config.get("lora_dir"))
        params = sd.SDImageGenParams(prompt=prompt, negative_prompt=asked.negative_prompt, seed=asked.seed)
        params.width, params.height = (side + -side % MULTIPLE for side in (asked.width, asked.height))
        params.batch_count = asked.n
        apply(params, self._config["picture"])
        sampling = params.sample_params
        sampling.sample_steps, sampling.cfg_scale = asked.steps, asked.cfg_scale
        if asked.start is not None:
            strength = params.strength if asked.strength is None else asked.strength
            sampling.sample_steps, params.strength = _schedule(asked.steps, strength)
        if asked.sampling_method:
            sampling.sample_method = _sampler(asked.sampling_method)
        if asked.flow_shift:
            sampling.flow_shift = asked.flow_shift
        apply(sampling, self._config["sampling"])
        params.sample_params = sampling
        if named:
            params.set_loras([{"path": str(each.path), "multiplier": each.weight} for each in named])
        self._pictures = _given(params, asked)
        return params

    @contextmanager
    def _telling(self, asked: protocol.Painting, tell: Tell | None) -> Iterator[None]:
        """Has the library tell of its steps, and show previews."""

        def step(number: int, steps: int, seconds: float) -> None:
            # It also counts tensors that it loads, and tiles that it decodes.
            if 0 < number <= steps <= max(asked.steps, 2):
                progress(f"step {number} of {steps}, {seconds:.2f} s")
                if tell is not None and asked.progress:
                    tell(protocol.PROGRESS, {"step": number, "steps": steps})

        sd.set_progress_callback(step)
        if tell is None or not asked.partial_images:
            yield
            return
        every = max(1, asked.steps // (asked.partial_images + 1))
        seen = shown = 0

        def preview(number: int, frames: list[Any], noisy: bool) -> None:
            nonlocal seen, shown
            # Steps are counted anew for each picture; the last one has the picture itself.
            seen, shown = number, shown if number > seen else 0
            if number >= asked.steps or shown >= asked.partial_images:
                return
            pixels = raster.cut(frames[0].to_numpy(), asked.width, asked.height)
            picture = base64.b64encode(raster.png(pixels)).decode()
            tell(protocol.PARTIAL, stamped({"b64_json": picture, "partial_image_index": shown, **_facts(asked)}))
            shown += 1

        sd.set_preview_callback(preview, self._preview, every, True, False)
        try:
            yield
        finally:
            sd.set_preview_callback(None)


def apply(target: Any, changes: Mapping[str, Any]) -> None:
    """Sets attributes of the library's parameters; an array `[ENUMERATION, NAME]` is a member of an enumeration.

    Raises:
        LemonadeError: this version of the library has no such parameter.
    """
    for name, value in changes.items():
        if not hasattr(type(target), name):
            raise LemonadeError(f"this version of stable-diffusion.cpp has no parameter '{name}'")
        if isinstance(value, list) and isinstance(value[0], str):
            value = getattr(getattr(sd, value[0]), value[1])
        setattr(target, name, tuple(value) if isinstance(value, list) else value)


def _sampler(name: str) -> Any:
    known = {sd.sample_method_name(method): method for method in sd.SampleMethod if method.name != "COUNT"}
    if name not in known:
        raise InvalidArgument(
            f"The sampling method must be one of {', '.join(known)}, not {name[:100]!r}.", param="sample_method"
        )
    return known[name]


def _schedule(steps: int, strength: float) -> tuple[int, float]:
    """Steps and strength for the library, so that it computes `steps` of them from a start under so much noise.

    Of a schedule it would compute that share, and one step more that adds no noise: with the few steps of quick models
    that is nothing at all, or everything.
    """
    computed = max(steps, 2)
    whole = 1 + round((computed - 1) / max(strength, 0.01))
    if strength < 1:
        whole = max(whole, computed + 1)
    return whole, (computed - 0.5) / whole


def _given(params: Any, asked: protocol.Painting) -> list[Any]:
    """Puts the pictures of a request into the parameters; they have to stay as long as these are used."""
    size = (asked.width, asked.height)
    images = [sd.SDImage.from_numpy(raster.reference(data, size)) for data in asked.references]
    if images:
        params.set_ref_images(list(images))
    if asked.start is not None:
        start = sd.SDImage.from_numpy(raster.padded(raster.start(asked.start, size), MULTIPLE))
        params.set_init_image(start)
        images.append(start)
    if asked.mask is not None:
        mask = sd.SDImage.from_numpy(raster.padded(raster.mask(asked.mask, size), MULTIPLE))
        params.set_mask_image(mask)
        images.append(mask)
    if images:
        raster.give_back()
    return images


def _upright(asked: protocol.Painting) -> protocol.Painting:
    """With its sides exchanged if they are those of a picture that lies on its side in its file."""
    first = asked.start or (asked.references[0] if asked.references else None)
    if asked.as_first and first is not None and raster.lies(first):
        return msgspec.structs.replace(asked, width=asked.height, height=asked.width)
    return asked


def _facts(asked: protocol.Painting) -> dict[str, Any]:
    """What OpenAI's clients want to find in each event."""
    size = f"{asked.width}x{asked.height}"
    return {"size": size, "quality": "auto", "background": "opaque", "output_format": "png"}


def _note(asked: protocol.Painting, info: Mapping[str, Any]) -> str:
    """How the picture was made, in the form that programs for such pictures share."""
    lines = [asked.prompt]
    if asked.negative_prompt:
        lines.append(f"Negative prompt: {asked.negative_prompt}")
    facts = {
        "Steps": info["steps"],
        "Sampler": info.get("sampling_method", ""),
        "CFG scale": info["cfg_scale"],
        "Seed": info["seed"],
        "Size": f"{asked.width}x{asked.height}",
        "Model": asked.model,
    }
    return "\n".join([*lines, ", ".join(f"{key}: {value}" for key, value in facts.items() if value != "")])


def _log(level: int, text: str) -> None:
    if level >= sd.LogLevel.INFO:
        print(text.rstrip(), file=sys.stderr, flush=True)
