"""The programs `lemonade` and `lemond`: their commands, and the one place where a failure becomes a line.

Command modules import what they use inside their functions, so that `--help` and the shell's completion stay quick.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from lemonade import __version__
from lemonade.cli import (
    alias,
    backends,
    cloud,
    collection,
    config,
    delete,
    export,
    imagine,
    importing,
    load,
    logs,
    options,
    pin,
    pull,
    route,
    run,
    scan,
    search,
    serve,
    speak,
    status,
    stop,
    system,
    transcribe,
    unload,
    updates,
    upscale,
    voices,
)
from lemonade.cli import list as listing
from lemonade.cli.target import Target
from lemonade.cli.terminal import fail
from lemonade.errors import LemonadeError

EXAMPLES = """
lemonade run Qwen3-0.6B-GGUF "Why is the sky blue?"
lemonade list --downloaded
lemonade status --port 8000       --host, --port and --api-key may stand anywhere
"""

#: Options that belong before the command, and that everybody types behind it.
GLOBAL_OPTIONS = ("--host", "--port", "--api-key")

HELP_NAMES = {"help_option_names": ["-h", "--help"]}


def epilog(examples: str) -> str:
    """Examples below the options. The backspace tells the formatter to keep the lines as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples.strip().splitlines())


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"lemonade {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("-v", "--version", callback=print_version, is_eager=True, help="Show the version and exit.")
]


# Rich would make prettier help pages for 60 ms more each time.
app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=HELP_NAMES,
    epilog=epilog(EXAMPLES),
)


@app.callback()
def lemonade(
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Host or URL of the daemon (or LEMONADE_HOST); localhost.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", min=1, max=65535, help="Its port (or LEMONADE_PORT); 13305.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Its API key (better: LEMONADE_API_KEY in the environment).")
    ] = None,
    version: Version = False,
) -> None:
    """Run language models on this machine and offer them to every program as the OpenAI API."""
    ctx.obj = Target(host, port, api_key)


config_app = typer.Typer(rich_markup_mode=None, invoke_without_command=True, context_settings=HELP_NAMES)
config_app.callback(epilog=epilog(config.EXAMPLES))(config.config)
config_app.command("set", epilog=epilog(config.SET_EXAMPLES))(config.set_config)

alias_app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, context_settings=HELP_NAMES)
alias_app.callback(epilog=epilog(alias.EXAMPLES))(alias.alias)
alias_app.command("add", epilog=epilog(alias.ADD_EXAMPLES))(alias.add)
alias_app.command("remove", epilog=epilog(alias.REMOVE_EXAMPLES))(alias.remove)
alias_app.command("list", epilog=epilog(alias.LIST_EXAMPLES))(alias.list_aliases)

backends_app = typer.Typer(rich_markup_mode=None, invoke_without_command=True, context_settings=HELP_NAMES)
backends_app.callback(epilog=epilog(backends.EXAMPLES))(backends.backends)
backends_app.command("install", epilog=epilog(backends.INSTALL_EXAMPLES))(backends.install)
backends_app.command("uninstall", epilog=epilog(backends.UNINSTALL_EXAMPLES))(backends.uninstall)

collection_app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, context_settings=HELP_NAMES)
collection_app.callback(epilog=epilog(collection.EXAMPLES))(collection.collection)
collection_app.command("create", epilog=epilog(collection.CREATE_EXAMPLES))(collection.create)
collection_app.command("show", epilog=epilog(collection.SHOW_EXAMPLES))(collection.show)
collection_app.command("export", epilog=epilog(collection.EXPORT_EXAMPLES))(collection.export)
collection_app.command("import", epilog=epilog(collection.IMPORT_EXAMPLES))(collection.import_collection)

cloud_app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, context_settings=HELP_NAMES)
cloud_app.callback(epilog=epilog(cloud.EXAMPLES))(cloud.cloud)
cloud_app.command("install", epilog=epilog(cloud.INSTALL_EXAMPLES))(cloud.install)
cloud_app.command("uninstall", epilog=epilog(cloud.UNINSTALL_EXAMPLES))(cloud.uninstall)
cloud_app.command("auth", epilog=epilog(cloud.AUTH_EXAMPLES))(cloud.auth)
cloud_app.command("clear", epilog=epilog(cloud.CLEAR_EXAMPLES))(cloud.clear)
cloud_app.command("list", epilog=epilog(cloud.LIST_EXAMPLES))(cloud.list_providers)

app.command("run", epilog=epilog(run.EXAMPLES))(run.run)
app.command("speak", epilog=epilog(speak.EXAMPLES))(speak.speak)
app.command("voices", epilog=epilog(voices.EXAMPLES))(voices.voices)
app.command("transcribe", epilog=epilog(transcribe.EXAMPLES))(transcribe.transcribe)
app.command("imagine", epilog=epilog(imagine.EXAMPLES))(imagine.imagine)
app.command("upscale", epilog=epilog(upscale.EXAMPLES))(upscale.upscale)
app.command("pull", epilog=epilog(pull.EXAMPLES))(pull.pull)
app.command("search", epilog=epilog(search.EXAMPLES))(search.search)
app.command("scan", epilog=epilog(scan.EXAMPLES))(scan.scan)
app.command("list", epilog=epilog(listing.EXAMPLES))(listing.list_models)
app.command("load", epilog=epilog(load.EXAMPLES))(load.load)
app.command("unload", epilog=epilog(unload.EXAMPLES))(unload.unload)
app.command("status", epilog=epilog(status.EXAMPLES))(status.status)
app.command("pin", epilog=epilog(pin.PIN_EXAMPLES))(pin.pin)
app.command("unpin", epilog=epilog(pin.UNPIN_EXAMPLES))(pin.unpin)
app.command("options", epilog=epilog(options.EXAMPLES))(options.options)
app.add_typer(alias_app, name="alias")
app.add_typer(collection_app, name="collection")
app.command("route", epilog=epilog(route.EXAMPLES))(route.route)
app.command("check-updates", epilog=epilog(updates.EXAMPLES))(updates.check_updates)
app.command("export", epilog=epilog(export.EXAMPLES))(export.export)
app.command("import", epilog=epilog(importing.EXAMPLES))(importing.import_model)
app.command("delete", epilog=epilog(delete.EXAMPLES))(delete.delete)
app.add_typer(cloud_app, name="cloud")
app.add_typer(backends_app, name="backends")
app.add_typer(backends_app, name="recipes", hidden=True)  # the original's other name
app.command("system", epilog=epilog(system.EXAMPLES))(system.system)
app.add_typer(config_app, name="config")
app.command("logs", epilog=epilog(logs.EXAMPLES))(logs.logs)
app.command("stop", epilog=epilog(stop.EXAMPLES))(stop.stop)
app.command("serve", epilog=epilog(serve.EXAMPLES))(serve.serve)

lemond_app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
lemond_app.command(context_settings=HELP_NAMES, epilog=epilog(serve.LEMOND_EXAMPLES))(serve.lemond)


def main() -> None:
    """The program `lemonade`. Exits with 0, 1 for a failure, 2 for a wrong command line, 130 after Ctrl-C."""
    _call(app, "lemonade", arrange(sys.argv[1:]))


def lemond() -> None:
    """The program `lemond`: `lemonade serve` with the folders as arguments."""
    _call(lemond_app, "lemond", sys.argv[1:])


def arrange(arguments: Sequence[str]) -> list[str]:
    """The command line as the parser wants it: global options first, and the two words of `--checkpoint ROLE WHERE`,
    which the original takes, as one. Behind `cloud`, `--api-key` is the provider's key."""
    front: list[str] = []
    rest: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == "--":
            rest += [word, *words]
            break
        if rest[:1] == ["cloud"] and word.partition("=")[0] == "--api-key":
            rest.append(word)
        elif word in GLOBAL_OPTIONS and words:
            front += [word, words.pop(0)]
        elif word.partition("=")[0] in GLOBAL_OPTIONS:
            front.append(word)
        elif word == "--checkpoint" and len(words) > 1 and re.fullmatch(r"[a-z_]+", words[0]) and words[1][:1] != "-":
            rest += [word, f"{words.pop(0)}={words.pop(0)}"]
        else:
            rest.append(word)
    return front + rest


def _call(program: typer.Typer, name: str, arguments: list[str]) -> None:
    try:
        program(args=arguments, prog_name=name)
    except LemonadeError as error:
        fail(_advice(error))
        sys.exit(1)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        sys.exit(1)


def _advice(error: LemonadeError) -> str:
    """The failure's message and what to do about it."""
    message = error.message if error.message.endswith((".", "!", "?")) else f"{error.message}."
    if error.code == "no_daemon":
        return f"{message} Start one on this machine with: lemonade serve"
    if error.status == 401:
        key = "LEMONADE_ADMIN_API_KEY" if "admin" in message else "LEMONADE_API_KEY"
        return f"{message} Set {key} to the daemon's key, or give --api-key."
    if error.code == "unknown_model":
        known = message.partition(" Use 'lemonade list'")[0]
        return f"{known} All of them: lemonade list. On the hubs: lemonade search, then lemonade pull OWNER/REPOSITORY."
    if error.type == "not_found":
        return f"The daemon does not offer this; it may be older than this command ({__version__})."
    return message


if __name__ == "__main__":
    main()
