"""Commands that train nothing start without what only training and drawing need."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "flwr", "pandas", "matplotlib", "sklearn", "scipy.optimize", "scipy.ndimage")
CODE = """
import atexit, sys
atexit.register(lambda: print(*({heavy} & set(sys.modules)), file=sys.stderr))
sys.argv = ["btfl", *{words}]
from btfl.cli import main
main()
"""


@pytest.mark.parametrize("words", [["--help"], ["methods"], ["methods", "coherent"], ["data", "list"]])
def test_a_command_that_only_tells_loads_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(heavy=set(HEAVY), words=words)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr.strip()
