"""``btfl speed`` tells what adapting costs; how much that is, is not for a test to say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from btfl.studies.speed.measure import peak_memory
from small import untrained
from variants import one_in


def btfl(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "140", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from btfl.cli import main; main()", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_it_times_each_method_beside_the_forward_pass_and_the_paper(tmp_path: Path) -> None:
    words = ["--models", "cnn", "--methods", "btfl,fedthe,ttt", "--samples", "3", "--repeats", "2"]
    done = btfl("speed", *words, "--no-memory", "--out", "speed.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in ("batch 1", "batch 32", "bare forward pass", "BTFL", "FedTHE", "TTT", "17.30", "77.72", "53.96"):
        assert text in done.stdout
    costs = json.loads((tmp_path / "speed.json").read_text())
    assert [(cost["batch"], cost["method"]) for cost in costs] == [
        (batch, method) for batch in (1, 32) for method in ("forward", "btfl", "fedthe", "ttt")
    ]
    for cost in costs:
        assert len(cost["seconds_per_1000"]) == len(cost["ratios"]) == 2
        assert min(cost["seconds_per_1000"]) > 0
        assert cost["peak_megabytes"] is None
        assert cost["method"] != "forward" or cost["ratios"] == [1.0, 1.0]


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.slow
def test_peak_memory_is_that_of_a_process_of_its_own() -> None:
    megabytes = peak_memory("btfl", untrained("cnn"))
    assert megabytes is not None
    assert 50 < megabytes < 5_000  # torch alone takes more than the least of these


MISTAKES = {
    "--models cnm": "Did you mean cnn",
    "--methods btlf": "Did you mean btfl",
    "--samples 0": "--samples",
}


@pytest.mark.parametrize("words", one_in(3, MISTAKES))
def test_a_mistake_is_found_before_anything_is_timed(words: str, tmp_path: Path) -> None:
    done, expected = btfl("speed", *words.split(), folder=tmp_path), MISTAKES[words]
    assert done.returncode != 0
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["speed", "export"])
def test_help_teaches(command: str, tmp_path: Path) -> None:
    done = btfl(command, "--help", folder=tmp_path)
    assert "Usage" in done.stdout
    assert "Example" in done.stdout
