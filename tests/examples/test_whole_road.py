"""The whole road: Flower trains, a node is exported, a new device joins, training goes on, both devices are renewed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")
pytest.importorskip("onnxruntime", reason="the devices need `pip install onnxruntime`")
pytest.importorskip("onnxscript", reason="exporting to ONNX needs `pip install btfl[onnx]`")

SCRIPT = Path(__file__).parents[2] / "examples" / "whole_road.py"


@pytest.mark.slow  # Flower starts a Python process for every message: minutes on two cores
def test_the_script_goes_all_the_way(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "road")], capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "without torch the answers are the same to" in done.stdout
    assert done.stdout.count("renewed after 30 images, has answered 60 with one memory") == 2
    assert "the whole road: done" in done.stdout
