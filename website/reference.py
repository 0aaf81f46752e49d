"""Reference pages, written from what is declared in the code: knobs, methods, commands, docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import click
import typer

from btfl.cli.app import app
from btfl.engines.faults import FaultSettings
from btfl.experiments.experiment import Experiment
from btfl.knobs import Knob
from btfl.methods.registry import GROUPS, METHODS, Variant
from btfl.recipes.settings import TrainingSettings
from btfl.serve.settings import ServeSettings

API = {
    "The core": (
        "btfl.core.summary", "btfl.core.calibration", "btfl.core.bundle", "btfl.core.heads", "btfl.core.likelihood",
        "btfl.core.expectation", "btfl.core.generative",
    ),
    "Methods": ("btfl.methods.base", "btfl.methods.card", "btfl.methods.btfl", "btfl.methods.coherent", "btfl.monitor"),
    "Your own model": ("btfl.torch", "btfl.graph"),
    "The benchmark": ("btfl.benchmark.api", "btfl.report.results", "btfl.report.recording", "btfl.report.table"),
    "Experiments and training": (
        "btfl.experiments.experiment", "btfl.recipes.base", "btfl.engines.base", "btfl.data.source", "btfl.knobs",
    ),
    "Errors": ("btfl.errors",),
}  # fmt: skip
"""The modules that people build on."""


def pages() -> dict[str, str]:
    """Return every generated page by its place on the site."""
    made = {
        "reference/settings.md": settings_page(),
        "reference/methods.md": methods_page(),
        "reference/commands.md": commands_page(),
        "reference/python.md": python_page(),
    }
    for modules in API.values():
        made.update({f"reference/{module}.md": f"# {module}\n\n::: {module}\n" for module in modules})
    return made


def settings_page() -> str:
    """Write every key of a TOML file, and every setting of the server, from the fields that declare them."""
    lines = [
        "# Every setting",
        "",
        "Written from the fields that declare them. A key of an experiment is an option of `btfl bench` and "
        "`btfl train` (`--longest-stream`), a line of a TOML file (`longest_stream = 500`), and an argument in Python.",
        "",
        "## An experiment",
        "",
        *_table(Experiment.knobs()),
        "## `[training]`",
        "",
        "The defaults are the paper's for the cnn; other models have their own (`TrainingSettings.for_model`). On the "
        "command line: `--set training.NAME=VALUE`.",
        "",
        *_table(each for each in TrainingSettings.knobs() if each.name not in ("model", "model_options", "seed")),
        "## Clients that fail",
        "",
        *_table(FaultSettings.knobs()),
        "## The server",
        "",
        "Options of `btfl serve`.",
        "",
        *_table(ServeSettings.knobs()),
    ]
    return "\n".join(lines)


def methods_page() -> str:
    """Write every method with every setting and column of it."""
    lines = [
        "# Every method and its settings",
        "",
        "Written from the methods themselves; `btfl methods NAME` prints the same. Settings are changed in brackets: "
        '`--method "btfl[prune_above=5]"`. Where ours differs from a paper or its program is in '
        "[methods](../methods.md).",
        "",
    ]
    for group, heading in GROUPS.items():
        lines += [f"## {heading}", ""]
        for variant in METHODS.values():
            if variant.group == group:
                lines += _method(variant)
    return "\n".join(lines)


def _method(variant: Variant) -> Iterator[str]:
    method, card = variant.method, variant.card
    yield from (f"### `{variant.name}`", "")
    yield f"**{variant.title}**: {card.summary}. Paper: {card.paper or 'none'}. Trains: `{variant.trained_with}`; sees "
    yield f"{method.takes}; needs {', '.join(f'`{each}`' for each in method.needs) or 'both heads alone'}."
    yield ""
    if variant.settings:
        changed = ", ".join(f"`{key} = {value}`" for key, value in variant.settings.items())
        yield from (f"Set to: {changed}; otherwise as `{method.cards[0].name}`.", "")
    elif method.knobs():
        yield from _table(method.knobs())
    if method.columns and variant.name == method.cards[0].name:
        told = "; ".join(f"`{column}`: {about.help}" for column, about in method.columns.items())
        yield from (f"Columns of its trace: {told}.", "")


def commands_page() -> str:
    """Write every command: what it does, its arguments and options."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    lines = [
        "# Every command",
        "",
        "Written from the commands themselves; `btfl COMMAND --help` prints the same. What all have in common, and "
        "the exit codes, are in [the command line](../commands.md). Options that come from an experiment's keys "
        "are left to [every setting](settings.md).",
        "",
    ]
    for name, command in sorted(_commands(group)):
        lines += [f"## `btfl {name}`", "", *_described(command), ""]
    return "\n".join(lines)


def _commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _described(command: click.Command) -> Iterator[str]:
    yield re.sub(r"\n\n(?=`btfl )", "\n\n    ", re.sub(r"(?m)^`(btfl [^`]*)`$", r"    \1", command.help or ""))
    yield ""
    common = {"as_json", "quiet", "verbose", "help"}
    keys = {each.name for each in Experiment.knobs()} | {each.name for each in ServeSettings.knobs()}
    with click.Context(command) as context:
        shown = [each for each in command.get_params(context) if each.name not in common | keys]
        if shown:
            yield from ("| option | meaning |", "| --- | --- |")
        for each in shown:
            name = f"`{', '.join(each.opts)}`" if isinstance(each, click.Option) else f"`{each.human_readable_name}`"
            yield f"| {name} | {_cell(getattr(each, 'help', None) or '')} |"


def python_page() -> str:
    """Write the list of modules, and the names that ``import btfl`` has."""
    lines = [
        "# Python",
        "",
        "What people build on, from the docstrings. `import btfl` has the names of the core; torch is imported only "
        "where it is needed.",
        "",
    ]
    for title, modules in API.items():
        lines += [f"## {title}", "", *(f"- [`{module}`]({module}.md): {_first_line(module)}" for module in modules), ""]
    return "\n".join(lines)


def _first_line(module: str) -> str:
    import importlib

    return (importlib.import_module(module).__doc__ or "").strip().partition("\n")[0]


def _table(knobs: Iterable[Knob]) -> list[str]:
    lines = ["| name | default | meaning and range |", "| --- | --- | --- |"]
    for each in knobs:
        about = f"{each.help} {each.range[0].upper()}{each.range[1:]}."
        lines.append(f"| `{each.name}` | {_value(each.default)} | {_cell(about)} |")
    return [*lines, ""]


def _value(value: Any) -> str:
    if value is None or value == "":
        return "none"
    text = (
        ", ".join(map(str, value))
        if isinstance(value, tuple | list)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
    return f"`{text}`" if text else "none"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
