"""The command line: one file a command. Each imports what is heavy when it is used, so that ``--help`` is quick."""

from __future__ import annotations

import sys


def main() -> None:
    """Run ``btfl``; whatever goes wrong ends in a sentence and an exit code (``btfl.cli.boundary``)."""
    from btfl.cli import boundary

    boundary.prepare_streams()
    boundary.debug.set(False)
    try:
        code = _run()
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        code = boundary.explain(error)
    sys.exit(code)


def _run() -> int:
    """Run the command that was typed; return its exit code."""
    try:
        import click
        from typer import rich_utils

        from btfl.cli.app import app
    except ModuleNotFoundError as error:
        sys.exit(f"btfl: {error.name} is not installed; the command line needs: pip install 'btfl[train]'")
    try:
        code = app(standalone_mode=False)
    except click.ClickException as error:
        rich_utils.rich_format_error(error)
        return error.exit_code
    except click.Abort as error:  # click's word for what it could not read
        raise error.__cause__ or KeyboardInterrupt from None
    if code == 130:  # click's way of saying Ctrl-C
        raise KeyboardInterrupt
    sys.stdout.flush()  # a full disk or a closed pipe is noticed here, not while Python ends
    return code if isinstance(code, int) else 0
