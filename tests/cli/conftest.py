"""The command line in this process, since importing torch takes seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from btfl.cli import main


@pytest.fixture
def btfl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return what the command line prints for these words, and make sure that it ended well, or not if not ``ok``."""

    def say(*words: str, ok: bool = True) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "argv", ["btfl", *words])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as stopped:
            main()
        said = capfd.readouterr()
        assert (stopped.value.code in (0, None)) == ok, said.out + said.err
        return said.out + said.err

    return say
