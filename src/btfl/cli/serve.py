"""``btfl serve``: adapters for a fleet, online. Needs ``btfl[serve]`` and no torch."""

from __future__ import annotations

from typing import Annotated, Any

import click
import typer

from btfl.cli import output
from btfl.cli.command import Command, Commands
from btfl.cli.options import knob_option

TOKENS = Commands(help="Tokens of a server: who may infer, read, or administrate.")

Database = Annotated[str, typer.Option(help="The server's database: sqlite:///FILE or postgresql://...")]
_DEFAULT = "sqlite:///btfl-serve.db"
_LIMITS = ("largest_body", "most_samples", "most_streams", "requests_per_second", "burst", "history")


class ServeCommand(Command):
    """A command whose options are the settings of the server."""

    def generated(self) -> list[click.Parameter]:
        """Return an option for each setting."""
        from btfl.serve.settings import ServeSettings

        made = []
        for knob in ServeSettings.knobs():
            # Panels, because a table's widest names and ranges take the room of all others: 80 columns must do.
            panel = "Limits" if knob.name in _LIMITS else None
            option = knob_option(knob, panel, knob.default, knob.default not in ("", None))
            if knob.type is bool:
                flag = knob.name.replace("_", "-")
                option = type(option)(
                    param_decls=[knob.name, f"--{flag}/--no-{flag}"], default=knob.default, help=knob.help,
                    is_flag=True, show_default=True, rich_help_panel="On or off",
                )  # fmt: skip
            made.append(option)
        return [*super().generated(), *made]


def serve(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FOLDER", help="Bundles, a run, a trained federation, or zoo:NAME.")],
    check: Annotated[
        bool, typer.Option("--check", help="Load everything, ask each model once, say so and end.")
    ] = False,
) -> None:
    """Serve a fleet: one model for each client, by the Open Inference Protocol v2, with a memory for each stream.

    On loopback no token is needed while the database has none. Everything else is in docs/serving.md.

    Examples:

    `btfl serve zoo:cifar10-cnn-dir0.1-quick`

    `btfl serve runs/demo --check`

    `btfl serve runs/demo --host 0.0.0.0 --workers 4 --database postgresql://btfl@db/btfl`
    """
    from btfl.serve import need_serve

    need_serve()
    from btfl.serve import run
    from btfl.serve.settings import ServeSettings

    names = [knob.name for knob in ServeSettings.knobs()]
    settings = run.settle_auth(ServeSettings.make(**{name: context.obj[name] for name in names}))
    if check:
        _show(run.check(source, settings), settings)
        return
    _announce(source, settings)
    run.run(source, settings)


def _announce(source: str, settings: Any) -> None:
    scheme = "https" if settings.tls_cert else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    typer.echo(f"btfl serve: {source} on {scheme}://{host}:{settings.port}/ (the page; /v2 for clients)", err=True)
    if not settings.auth:
        typer.secho(
            "btfl serve: NO TOKENS ARE ASKED FOR: whoever can run programs on this machine can read and change every "
            "stream. Make one with `btfl serve-token new NAME --may infer`, and start again.",
            err=True,
            fg="red",
            bold=True,
        )
    elif not settings.tls_cert and not settings.is_loopback:
        typer.secho(
            "btfl serve: no TLS: tokens can be read on the network. Give --tls-cert and --tls-key, or stand behind a "
            "proxy that has them.",
            err=True,
            fg="yellow",
        )


def _show(found: dict[str, Any], settings: Any) -> None:
    lines = [f"{name:<11} {value}" for name, value in found.items()]
    tokens = f"{'tokens are':<11} {'asked for' if settings.auth else 'not asked for (loopback)'}"
    output.emit_lines({**found, "tokens": bool(settings.auth)}, *lines, tokens, "everything is in order")


@TOKENS.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is.")],
    may: Annotated[list[str], typer.Option(help="What it may: infer, read or admin. May be repeated.")],
    model: Annotated[list[str] | None, typer.Option(help="Models it sees, `client-3` or `floor2-*`.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose streams it sees; default NAME; `*`: everyone's.")] = None,
    days: Annotated[float | None, typer.Option(min=0, help="Days until it expires.")] = None,
    database: Database = _DEFAULT,
) -> None:
    """Make a token and print it: it is stored nowhere, only its hash is.

    Examples:

    `btfl serve-token new floor2 --may infer --model 'floor2-*'`

    `btfl serve-token new wall --may read --tenant '*'`
    """
    text, _ = _book(database).new(name, may, tenant, model or ("*",), days)
    output.emit_lines({"token": text}, text)


@TOKENS.command("list")
def list_(database: Database = _DEFAULT) -> None:
    """List the tokens: their numbers, names and rights.

    Example: `btfl serve-token list`
    """
    tokens = list(_book(database).all())
    lines = [
        f"{token.id}  {token.name}  may {','.join(token.may)}  streams of {token.tenant}  "
        f"models {','.join(token.models)}"
        for token in tokens
    ] or ["there are no tokens"]
    keys = ("id", "name", "may", "tenant", "models")
    output.emit_lines({"tokens": [{key: getattr(token, key) for key in keys} for token in tokens]}, *lines)


@TOKENS.command("revoke")
def revoke(
    number: Annotated[str, typer.Argument(metavar="ID", help="The token's number, as `list` shows it.")],
    database: Database = _DEFAULT,
) -> None:
    """Revoke a token; servers notice within seconds.

    Example: `btfl serve-token revoke 1f2e3d4c5b6a`
    """
    _book(database).revoke(number)


def _book(database: str) -> Any:
    from btfl.serve import need_serve

    need_serve()
    from btfl.serve.schema import open_engine
    from btfl.serve.tokens import TokenBook

    return TokenBook(open_engine(database))
