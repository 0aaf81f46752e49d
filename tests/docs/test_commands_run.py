"""Every command of README and docs works in a fresh clone, as printed (slow: it installs btfl, trains, and more)."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.run_commands import run_all


@pytest.mark.slow
def test_every_command_works_as_printed(tmp_path: Path) -> None:
    assert run_all(tmp_path) == []
