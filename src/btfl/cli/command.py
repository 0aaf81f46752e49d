"""How commands read what was typed: a single option only once, and the settings of an experiment as options."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar

import click
import typer
from typer.core import TyperCommand
from typer.models import CommandFunctionType

from btfl.cli.options import experiment_options, fault_options


class Command(TyperCommand):
    """A command that refuses a single option given twice, where click would take the last one."""

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


class ExperimentCommand(Command):
    """A command that works on an experiment: its options are the experiment's own.

    They are made when the command is used and not before, so that ``btfl --help`` is quick. The function of the
    command finds all that was typed in ``context.obj``.
    """

    faults: ClassVar[tuple[str, ...]] = ("min_share", "smallest_cohort")
    """The settings of ``FaultSettings`` that are options, too."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own options, and those of an experiment."""
        *own, help_option = super().get_params(ctx)
        return [*own, *self._generated(), help_option]

    def invoke(self, ctx: click.Context) -> Any:
        """Hand what the command's function has no parameter for over in ``ctx.obj``."""
        ctx.obj = dict(ctx.params)
        for option in self._generated():
            del ctx.params[str(option.name)]
        return super().invoke(ctx)

    def _generated(self) -> list[click.Parameter]:
        return [*fault_options(self.faults), *experiment_options()]


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
