"""``btfl methods``: what can be compared, and every setting of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from btfl.cli import completion

if TYPE_CHECKING:
    from rich.console import Console

    from btfl.knobs import Knob
    from btfl.methods.registry import Variant


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A method: show its settings and columns.",
            autocompletion=completion.completing(completion.methods),
        ),
    ] = None,
) -> None:
    """List the methods; with a name, show every setting of it with its meaning, range and default.

    Examples:

    `btfl methods`

    `btfl methods coherent`
    """
    from rich.console import Console

    from btfl.methods.registry import METHODS, find_method

    console = Console(highlight=False)
    if name is not None:
        _show(console, find_method(name))
        return
    for variant in METHODS.values():
        console.print(f"[bold]{variant.name}[/bold]  {variant.title}: {variant.card.summary}")
        console.print(
            f"    paper: {variant.card.paper or 'none'}\n"
            f"    trains: {variant.trained_with}; sees: {variant.method.takes}",
            markup=False,
        )
    console.print("\nSettings of one: btfl methods NAME. Change them with name\\[setting=value,...].")
    console.print("A method of your own: --method my_module:MyMethod; see docs/adding-a-method.md.")


def _show(console: Console, variant: Variant) -> None:
    method, card = variant.method, variant.card
    console.print(f"[bold]{variant.name}[/bold]  {variant.title}")
    exported = "yes (btfl export)" if method.exportable else "no"
    for what, said in (
        ("does", card.summary),
        ("paper", card.paper or "none"),
        ("trains", variant.trained_with),
        ("sees", method.takes),
        ("needs", ", ".join(method.needs) or "both heads alone"),
        ("exports to ONNX", exported),
    ):
        console.print(f"  {what}: {said}", markup=False)
    console.print("\nSettings" if method.knobs() else "\nIt has no settings.")
    for each in method.knobs():
        _show_setting(console, each, variant)
    if method.columns:
        console.print("\nColumns of its trace")
        for column, about in method.columns.items():
            console.print(f"  [bold]{column}[/bold]: {about.help}")


def _show_setting(console: Console, each: Knob, variant: Variant) -> None:
    default = "none" if each.default is None else each.default
    here = variant.settings.get(each.name, each.default)
    changed = f"; here {here}" if here != each.default else ""
    console.print(f"  [bold]{each.name}[/bold] = {default}{changed}")
    console.print(f"      {each.help}".rstrip(), markup=False)
    console.print(f"      {each.range[0].upper()}{each.range[1:]}.", markup=False)
