"""How commands read what was typed: a single option only once, and the settings of an experiment as options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, ClassVar

import click
import typer
from typer.core import TyperCommand, TyperOption
from typer.models import CommandFunctionType

from btfl.cli import output
from btfl.cli.options import experiment_options, fault_options
from btfl.imports import named_in, only_trusted

_NAMES_CODE = ("methods", "method", "model", "models", "backbone", "changes", "name")
"""Parameters whose values may be, or hold, a ``module:Name`` of the user's own."""
_PLACES = ("experiment", "start", "run", "source", "name")
"""Parameters that say which files are read."""


class Command(TyperCommand):
    """A command that refuses a single option given twice, where click would take the last one.

    No code but btfl's own is imported while it runs, except what was typed (``btfl.imports``).
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options of the command's function, and those that are made for it."""
        *own, help_option = super().get_params(ctx)
        for option in own:
            if isinstance(option, click.Option) and option.envvar is None:
                option.show_envvar = False  # or errors would say "(env var: 'None')"
        return [*own, *self.generated(), help_option]

    def generated(self) -> list[click.Parameter]:
        """Return options that the command's function has no parameter for; it finds them in ``context.obj``."""
        return output.options()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command's function."""
        ctx.obj = typed = dict(ctx.params)
        for option in self.generated():
            del ctx.params[str(option.name)]
        flags = {flag for each in self.get_params(ctx) for flag in each.opts}
        places = " or ".join(str(typed[name]) for name in _PLACES if typed.get(name)) or "a file"
        trusted = only_trusted(_typed_code(typed), everything=typed.get("trust_code", False), flags=flags)
        with output.settled(typed), trusted, named_in(places):
            return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words after the command."""
        words = list(args)
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            self._refuse_repeated(ctx, words)
        return rest

    def _refuse_repeated(self, ctx: click.Context, words: list[str]) -> None:
        """Read the words again with every single option as one that may be repeated, and count."""
        single = [each for each in self.get_params(ctx) if isinstance(each, click.Option) and not each.multiple]
        parser = self.make_parser(ctx)
        for option in single:
            several = copy(option)
            several.multiple = True
            several.add_to_parser(parser, ctx)
        values, _, _ = parser.parse_args(words)
        for option in single:
            given = values.get(str(option.name), [])
            if len(given) > 1:
                count = "twice" if len(given) == 2 else f"{len(given)} times"
                said = "" if option.is_flag else f": {' and '.join(map(str, given))}"
                name = max(option.opts, key=len)
                raise click.UsageError(f"{name} is given {count}{said}; give it once", ctx)


def _typed_code(typed: Mapping[str, Any]) -> set[str]:
    """Return each ``module:Name`` among the values that may name code."""
    found: set[str] = set()
    for name in _NAMES_CODE:
        value = typed.get(name) or ()
        texts: Iterable[Any] = [value] if isinstance(value, str) else value
        found.update(each for text in texts for each in re.findall(r"[\w.]+:\w+", str(text)))
    return found


class FileCommand(Command):
    """A command that reads files which may name code: ``--trust-code`` lets it be imported."""

    def generated(self) -> list[click.Parameter]:
        """Return ``--trust-code``."""
        return [
            TyperOption(
                param_decls=["trust_code", "--trust-code"],
                is_flag=True,
                default=False,
                help="Import the modules that files name, which runs them. See docs/security.md.",
            ),
            *super().generated(),
        ]


class ExperimentCommand(FileCommand):
    """A command that works on an experiment: its options are the experiment's own.

    They are made when the command is used and not before, so that ``btfl --help`` is quick. The function of the
    command finds all that was typed in ``context.obj``.
    """

    faults: ClassVar[tuple[str, ...]] = ("min_share", "smallest_cohort")
    """The settings of ``FaultSettings`` that are options, too."""
    several: ClassVar[bool] = False
    """Whether a number may be several, with commas between them."""

    def generated(self) -> list[click.Parameter]:
        """Return the options of an experiment, and how failing clients are treated."""
        return [*super().generated(), *fault_options(self.faults), *experiment_options(several=self.several)]


class BenchCommand(ExperimentCommand):
    """A command that runs an experiment for each of several numbers."""

    several: ClassVar[bool] = True


class FlowerCommand(ExperimentCommand):
    """A command that trains on Flower, where clients have a time limit."""

    faults: ClassVar[tuple[str, ...]] = ("min_share", "smallest_cohort", "time_limit")


class Commands(typer.Typer):
    """A group of commands of this kind."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown", **settings)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = Command, **settings: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Register a function as a command."""
        return super().command(name, cls=cls, **settings)
