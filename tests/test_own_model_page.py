"""What docs/own-model.md prints runs as printed; what cannot be run there says why."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "own-model.md"
BLOCKS = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```", PAGE.read_text(), re.S | re.M)


def run(title: str, folder: Path) -> dict[str, Any]:
    file = folder / "printed.py"
    file.write_text(dict(BLOCKS)[title])
    return runpy.run_path(str(file))


def test_every_section_has_a_block_that_is_run_or_says_why_not() -> None:
    assert [title for title, _ in BLOCKS] == ["Plain PyTorch", "Flower", "pfl-research", "scikit-learn"]
    assert len(re.findall("```python", PAGE.read_text())) == len(BLOCKS)
    not_run = {title for title, code in BLOCKS if code.startswith("# not run: it needs ")}
    assert not_run == {"Flower", "pfl-research"}


@pytest.mark.parametrize("title", ["Flower", "pfl-research"])
def test_a_block_that_is_not_run_names_what_exists(title: str) -> None:
    code = dict(BLOCKS)[title]
    compile(code, title, "exec")
    for module, names in re.findall(r"^from (btfl[\w.]*) import (.+)$", code, re.M):
        pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")
        found = __import__(module, fromlist=["_"])
        assert all(hasattr(found, name.strip()) for name in names.split(","))


def test_plain_pytorch(tmp_path: Path) -> None:
    import torch

    with torch.random.fork_rng(devices=[]):
        found = run("Plain PyTorch", tmp_path)
    assert found["probabilities"].shape == (5, 3)
    assert '"seen": 5' in found["saved"]


def test_scikit_learn(tmp_path: Path) -> None:
    right = run("scikit-learn", tmp_path)["right"]
    assert set(right) == {"Btfl", "Coherent"}
    assert min(right.values()) > 0.85
