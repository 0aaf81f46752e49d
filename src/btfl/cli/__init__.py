"""The command line: one file a command. Each imports what is heavy when it is used, so that ``--help`` is quick."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run ``btfl``; a user's mistake ends in a sentence, not in a stack trace."""
    try:
        from btfl.cli.app import app
    except ModuleNotFoundError as error:
        sys.exit(f"btfl: {error.name} is not installed; the command line needs: pip install 'btfl[train]'")
    from btfl.errors import BtflError

    sys.path.insert(0, str(Path.cwd()))  # so that a method or model of the user's own is found
    try:
        app()
    except BtflError as error:
        print(f"btfl: {error}", file=sys.stderr)
        sys.exit(2)
