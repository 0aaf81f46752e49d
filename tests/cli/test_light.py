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


def test_python_m_btfl_is_the_command_line() -> None:
    """For whom the script is not on the path; in a worker process, which imports the module again, nothing runs."""
    done = subprocess.run([sys.executable, "-m", "btfl", "methods", "coherrent"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Did you mean coherent" in done.stderr
    again = subprocess.run([sys.executable, "-c", "import btfl.__main__"], capture_output=True, text=True)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
