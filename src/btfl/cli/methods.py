"""``btfl methods``: what can be compared, and every setting of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from btfl.cli import completion, output

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
            autocompletion=completion.methods,
        ),
    ] = None,
) -> None:
    """List the methods by what they need; with a name, show every setting of it with its meaning, range and default.

    Examples:

    `btfl methods`

    `btfl methods coherent`
    """
    from btfl.methods.registry import METHODS, find_method

    if name is not None:
        variant = find_method(name)
        output.emit(_plain(variant), lambda console: _show(console, variant), highlight=False)
        return
    show = _show_settings_of_all if output.current().verbose else _show_list
    output.emit({"methods": [_plain(variant) for variant in METHODS.values()]}, show, highlight=False)


def _show_settings_of_all(console: Console) -> None:
    from btfl.methods.registry import METHODS

    for variant in METHODS.values():
        _show(console, variant)
        console.print()


def _show_list(console: Console) -> None:
    from btfl.methods.registry import GROUPS, METHODS

    for group, heading in GROUPS.items():
        console.print(f"[bold underline]{heading}[/bold underline]")
        for variant in METHODS.values():
            if variant.group == group:
                console.print(f"[bold]{variant.name}[/bold]  {variant.title}: {variant.card.summary}")
                console.print(
                    f"    paper: {variant.card.paper or 'none'}\n"
                    f"    trains: {variant.trained_with}; sees: {variant.method.takes}",
                    markup=False,
                )
        console.print()
    console.print("No method sees a label at test time, nor whether a sample is external.")
    console.print("Settings of one: btfl methods NAME. Change them with name\\[setting=value,...].")
    console.print("All but those that take gradient steps at test time, which are slow: --method all.")
    console.print("A method of your own: --method my_module:MyMethod; see docs/adding-a-method.md.")


def _plain(variant: Variant) -> dict[str, Any]:
    """Return what is known of a method, for JSON."""
    method, here = variant.method, _values(variant)
    return {
        "name": variant.name,
        "title": variant.title,
        "does": variant.card.summary,
        "paper": variant.card.paper,
        "group": variant.group,
        "trains": variant.trained_with,
        "sees": method.takes,
        "needs": list(method.needs),
        "gradients": method.gradients,
        "labels": method.sees_labels,
        "settings": [
            {"name": each.name, "value": here.get(each.name, each.default), "default": each.default,
             "range": each.range, "help": each.help}
            for each in method.knobs()
        ],
        "columns": {column: about.help for column, about in method.columns.items()},
    }  # fmt: skip


def _values(variant: Variant) -> dict[str, Any]:
    """Return a method's settings as they are under this name."""
    if variant.method.settings_class.knobs():
        return variant.method.settings_class.make(**variant.settings).as_dict()
    return {**variant.settings}


def _show(console: Console, variant: Variant) -> None:
    from rich.markup import escape

    method, card = variant.method, variant.card
    console.print(f"[bold]{escape(variant.name)}[/bold]  {escape(variant.title)}")
    exported = "yes, as it is by default (btfl export)" if method.exportable and not variant.settings else "no"
    preset = ", ".join(f"{key} = {value}" for key, value in variant.settings.items())
    for what, said in (
        ("does", card.summary),
        *([("is set to", preset)] if preset else []),
        ("paper", card.paper or "none"),
        ("trains", variant.trained_with),
        ("sees", method.takes),
        ("needs", ", ".join(method.needs) or "both heads alone"),
        ("gradients at test time", "yes" if method.gradients else "no"),
        ("labels at test time", "yes: it is a ceiling, and no method" if method.sees_labels else "never"),
        ("exports to ONNX", exported),
    ):
        console.print(f"  {what}: {said}", markup=False)
    console.print("\nSettings" if method.knobs() else "\nIt has no settings.")
    here = _values(variant)
    for each in method.knobs():
        _show_setting(console, each, here.get(each.name, each.default))
    if method.columns:
        console.print("\nColumns of its trace")
        for column, about in method.columns.items():
            console.print(f"  [bold]{column}[/bold]: {about.help}")


def _show_setting(console: Console, each: Knob, value: Any) -> None:
    """Print a setting: its value under this name, its meaning, its range, and its default if that is another."""
    shown, default = ("none" if one is None else one for one in (value, each.default))
    console.print(f"  [bold]{each.name}[/bold] = {shown}")
    if each.help:
        console.print(f"      {each.help}", markup=False)
    changed = f" Default: {default}." if value != each.default else ""
    console.print(f"      {each.range[0].upper()}{each.range[1:]}.{changed}", markup=False)
