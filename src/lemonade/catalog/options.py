"""The layers of one model's options.

From the highest: the request, what was saved for the model, what its row says, its picture defaults, what its
architecture needs, the settings, the built-in default. A layer that says null, -1, "" or "auto" leaves the choice to
the next one, except that -1 is a context size: the automatic one.

Arguments (`*_args`) of the layers are merged, unless `merge_args` is false; then only the request's count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lemonade.catalog import context
from lemonade.catalog.arguments import flags, merge, word_behind
from lemonade.catalog.catalog import Catalog
from lemonade.catalog.option_checks import check_request, check_saved
from lemonade.catalog.recipes import RECIPES, Option, is_set, options_of
from lemonade.catalog.saved_options import own_options
from lemonade.errors import InvalidArgument
from lemonade.model import Checkpoint, Model
from lemonade.settings import Settings
from lemonade.system.hardware import GIB, Hardware

#: Arguments by the architecture in the model's file. Source: what the authors of these models recommend.
ARCHITECTURES: dict[str, dict[str, str]] = {
    "gemma4": {"llamacpp_args": "--temp 1.0 --top-p 0.95 --top-k 64"},
    "nemotron_h_moe": {"llamacpp_args": "--temp 0.6 --top-p 0.95"},
    "qwen3": {"llamacpp_args": "--temp 0.6 --top-p 0.85 --top-k 20 --min-p 0.0 --repeat-penalty 1.0"},
    "qwen3next": {"llamacpp_args": "--temp 0.6 --top-p 0.95 --top-k 20 --min-p 0.0 --presence-penalty 1.0"},
}
ARCHITECTURES["qwen35"] = ARCHITECTURES["qwen35moe"] = {
    "llamacpp_args": "--temp 1.0 --top-p 0.95 --top-k 20 --min-p 0.00 --repeat-penalty 1.0 "
    """--chat-template-kwargs '{"preserve_thinking":true}'"""
}

#: What llama.cpp is told when nobody says otherwise: the flags of which any one means that somebody did, the arguments.
MTP = (frozenset({"--spec-type"}), "--spec-type draft-mtp --spec-draft-n-max 3 --spec-draft-p-min 0.75")
DFLASH = (frozenset({"--spec-type"}), "--spec-type draft-dflash")
#: Options by which an engine is started, by how their names end.
STARTING = ("_args", "_backend", "_device")
PARALLEL = (frozenset({"--parallel", "-np"}), "--parallel 1")
#: Models that only read take a text per slot, and compute those in all slots at once: many short ones are done several
#: times sooner than one after the other. Source: measured with a MiniLM.
READING = (PARALLEL[0], "--parallel 16")


class Options:
    """Options of models, resolved.

    Args:
        backend: the best backend of a recipe on this machine, `""` when there is none.
        check: looks at the arguments and the backend that a model of a recipe would be started with; raises
            InvalidArgument.
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: Settings,
        hardware: Hardware,
        backend: Callable[[str], str] = lambda recipe: "",
        check: Callable[[str, Mapping[str, Any]], None] = lambda recipe, options: None,
    ) -> None:
        self._catalog = catalog
        self._settings = settings
        self._hardware = hardware
        self._backend = backend
        self._check = check

    def resolve(self, model: Model, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Every option of the model's recipe, in the order of names; `ctx_size` may be -1. `pinned` is among them only
        when it is true.

        Args:
            request: options of a load. null passes over what was saved; keys that are no options are overlooked.

        Raises:
            InvalidArgument: an option of the wrong type, named.
        """
        return self._resolve(model, self.saved(model), request or {})

    @staticmethod
    def accept(model: Model, request: Mapping[str, Any]) -> dict[str, Any]:
        """The options among the fields of a load, checked; fields that are no options of the recipe are left out.

        Raises:
            InvalidArgument: a value that the option cannot have, named.
        """
        return check_request(model, request)

    def context_size(self, model: Model, options: Mapping[str, Any]) -> int:
        """The number of tokens that a load with these resolved options gives the model."""
        recipe = RECIPES.get(model.recipe)
        if recipe is None or not recipe.uses_context_size:
            return context.UNKNOWN
        embedding = model.type == "embedding"
        stated = options.get("ctx_size", -1)
        if stated > 0:
            return max(stated, context.EMBEDDING) if embedding else int(stated)
        return context.automatic(
            available=self._hardware.memory_available(),
            size=self._catalog.size(model),
            header=self._catalog.header(model),
            embedding=embedding,
        )

    def check_memory(self, model: Model, options: Mapping[str, Any]) -> None:
        """Raises InvalidArgument for a stated context of which the cache cannot be in this machine's memory beside the
        model, whatever else is unloaded. Weights that do not fit are read from the disk again and again, so they alone
        are no reason."""
        tokens, memory = options.get("ctx_size", -1), self._memory(options)
        arguments = options.get("llamacpp_args") or ""
        each = context.least_bytes_per_token(
            self._catalog.header(model) if model.recipe == "llamacpp" else None,
            word_behind(arguments, "--cache-type-k", "-ctk"),
            word_behind(arguments, "--cache-type-v", "-ctv"),
        )
        if tokens <= 0 or not memory or not each:
            return
        weights = self._catalog.size(model) * GIB
        room = memory - weights if weights < memory else memory
        if tokens * each > room:
            raise InvalidArgument(
                f"'ctx_size': {tokens} tokens need {tokens * each / GIB:.1f} GiB beside the {weights / GIB:.1f} GiB of "
                f"'{model.name}', and this machine has {memory / GIB:.1f} GiB. At most {int(room / each)} tokens can "
                "fit; -1 takes what does.",
                param="ctx_size",
            )

    def _memory(self, options: Mapping[str, Any]) -> int:
        """Bytes that a model and its cache can ever have; 0 when unknown."""
        if "--rpc" in flags(options.get("llamacpp_args") or ""):
            return 0  # the memory of other machines counts, too
        backend = options.get("llamacpp_backend") or "cpu"
        if backend == "cpu":
            return self._hardware.memory
        gpus = self._hardware.gpus
        if not gpus and (backend != "system" or self._hardware.os != "linux"):
            return 0  # there is one, which cannot be seen
        # Those of Intel are all taken for integrated ones, and some are not.
        own = [gpu.vram for gpu in gpus if not gpu.integrated or gpu.vendor == "intel"]
        return self._hardware.memory + sum(own) if self._hardware.memory and all(own) else 0

    def report(self, model: Model, name: str, *, preview: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer of `/models/{id}/options`.

        Args:
            name: the id as requested.
            preview: changes that `effective` shows as if they were saved.

        Raises:
            RequestError: a change that `save` would refuse.
        """
        saved = self.saved(model)
        entry = dict(saved)
        if preview is not None:
            changes = check_saved(model, preview)
            _apply(entry, changes)
            self._refuse(model, entry, changes)
        effective = self._resolve(model, entry, {})
        return {
            "model_name": name,
            "recipe": model.recipe,
            "saved": saved,
            "effective": _replayable(effective, name),
            "defaults": _replayable(self._resolve(model, {}, {}), name),
            "resolved_ctx_size": self.context_size(model, effective),
        }

    def saved(self, model: Model) -> dict[str, Any]:
        """What was saved for the model, as it stands in the file."""
        return self._catalog.saved.of(model)

    def save(self, model: Model, changes: Mapping[str, Any]) -> None:
        """Merges changes into the model's saved options; null, and but for `ctx_size` -1, "" and "auto", clear one.

        Raises:
            RequestError: an option that the recipe does not have, or a value that cannot be; nothing is saved.
            OSError: the file cannot be written.
        """
        checked = check_saved(model, changes)
        entry = self.saved(model)
        _apply(entry, checked)
        self._refuse(model, entry, checked)
        self._catalog.saved.change(model, lambda entry: _apply(entry, checked))

    def replace(self, model: Model, request: Mapping[str, Any]) -> None:
        """Replaces the model's saved options by those of a load; a key that is null keeps its saved value.

        Raises:
            InvalidArgument: an option of the wrong type, named.
            OSError: the file cannot be written.
        """
        wanted = check_request(model, request)
        self._refuse(model, {key: value for key, value in wanted.items() if is_set(key, value)}, wanted)

        def edit(entry: dict[str, Any]) -> None:
            kept = {key: entry[key] for key, value in wanted.items() if value is None and key in entry}
            entry.clear()
            entry.update(kept)
            entry.update((key, value) for key, value in wanted.items() if is_set(key, value))

        self._catalog.saved.change(model, edit)

    def forget(self, model: Model) -> None:
        """Erases all saved options of the model."""
        self._catalog.saved.change(model, lambda entry: entry.clear())

    def _refuse(self, model: Model, entry: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
        """Raises InvalidArgument when what would be saved can only fail at every load. What other layers say is theirs
        to mend."""
        if any(key.endswith(STARTING) for key in changes):
            said = {key: entry.get(key, "") for key in options_of(model.recipe) if key.endswith("_args")}
            self._check(model.recipe, {**self._resolve(model, entry, {}), **said})
        if changes.get("ctx_size") is not None and model.recipe == "llamacpp":
            self.check_memory(model, self._resolve(model, entry, {}))

    def _resolve(self, model: Model, saved: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
        wanted = check_request(model, request)
        row = own_options(model, {})
        own = own_options(model, dict(saved))
        header = self._catalog.header(model) if model.recipe == "llamacpp" else None
        architecture: Mapping[str, Any] = ARCHITECTURES.get(header.architecture, {}) if header else {}
        result: dict[str, Any] = {}
        arguments: dict[str, Option] = {}
        for key, option in options_of(model.recipe).items():
            result[key] = option.default
            if option.setting.endswith(".args"):
                arguments[key] = option
                continue
            stored = row if _is_passed_over(key, wanted) else own
            for value in (wanted.get(key), stored.get(key), architecture.get(key), self._setting(model, option)):
                if is_set(key, value):
                    result[key] = value
                    break
        for key, option in arguments.items():
            result[key] = self._arguments(model, key, option, result, wanted, (row, own, architecture))
        if not result["pinned"]:
            del result["pinned"]
        return result

    def _setting(self, model: Model, option: Option) -> Any:
        if not option.setting:
            return None
        value = self._settings[option.setting]
        if option.setting.endswith(".backend") and value == "auto":
            return self._backend(model.recipe)
        return value

    def _arguments(
        self,
        model: Model,
        key: str,
        option: Option,
        resolved: Mapping[str, Any],
        wanted: Mapping[str, Any],
        layers: tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]],
    ) -> str:
        row, own, architecture = layers
        asked = wanted.get(key)
        if not resolved["merge_args"]:
            return asked or ""
        backend = self._settings_arguments(model, option, resolved)
        if asked:
            text = merge(asked, backend)
        else:
            chosen = row if _is_passed_over(key, wanted) else own
            text = merge(merge(chosen.get(key, ""), architecture.get(key, "")), backend)
        return _with_defaults(text, model, resolved["llamacpp_backend"]) if key == "llamacpp_args" else text

    def _settings_arguments(self, model: Model, option: Option, resolved: Mapping[str, Any]) -> str:
        section = RECIPES[model.recipe].section
        backend = resolved.get(f"{model.recipe}_backend", "cpu")
        specific = f"{section}.{backend}_args"
        known = specific in self._settings
        return str((self._settings[specific] if known else "") or self._settings[option.setting])


def _is_passed_over(key: str, wanted: Mapping[str, Any]) -> bool:
    """Whether the request says null, which hides what was saved from this load."""
    return key in wanted and wanted[key] is None


def _with_defaults(text: str, model: Model, backend: str) -> str:
    given = flags(text)
    draft = Checkpoint.parse(model.checkpoints.get("draft", "")).variant.lower()
    wanted = []
    if "dflash" in model.labels and "dflash" in draft:
        wanted.append(DFLASH)
    elif "mtp" in model.labels:
        wanted.append(MTP)
    # A program of the user's gets the command line that Lemonade Server would give it.
    reads = model.type in ("embedding", "reranking") and backend != "system"
    wanted.append(READING if reads else PARALLEL)
    for unless, arguments in wanted:
        if not unless & given:
            text = f"{text} {arguments}".strip()
    return text


def _apply(entry: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if is_set(key, value):
            entry[key] = value
        else:
            entry.pop(key, None)


def _replayable(resolved: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A body for `/v1/load`."""
    body = {key: value for key, value in resolved.items() if key != "pinned"}
    return dict(sorted({**body, "model_name": name}.items()))
