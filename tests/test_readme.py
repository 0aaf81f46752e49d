"""What README and docs print runs as printed; ``tests/docs`` has what all pages have in common."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from btfl import BtflError, ClientBundle, Coherent, Summary

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs_as_printed_and_is_as_good_as_it_says(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len([line for line in code.splitlines() if line.strip() and "import" not in line]) <= 10
    check = """
assert abs(probabilities.sum(1) - 1).max() < 1e-12
right = [shared.predict(x[600:]), personal.predict(z[600:]), probabilities.argmax(1)]
print(*(f"{(answers == y[600:]).mean():.1%}".replace("%", " %") for answers in right), sep=";")
"""
    command = [sys.executable, "-W", "error", "-c", code + check]
    done = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True)
    said = re.search(
        r"shared model has (.*?) right, the personal head (.*?), and the mixture (.*?)\.\s", README.read_text()
    )
    assert said is not None
    for shown, found in zip(said.groups(), done.stdout.strip().split(";"), strict=True):
        assert abs(float(shown.split()[0]) - float(found.split()[0])) < 1  # training differs a little between machines


def test_the_method_of_adding_a_method_runs_as_printed(tmp_path: Path) -> None:
    halfway = _block("adding-a-method.md", tmp_path)["Halfway"]
    bundle, features = _bundle()
    method = halfway(bundle, e=0.8, rate=0.1)
    together = method.predict(features)
    after = method.state
    method.reset()
    apart = np.concatenate([method.predict(features[:7]), method.predict(features[7:])])
    np.testing.assert_array_equal(together, apart)
    assert method.state == after
    assert set(method.trace) == {"e", "surer"}
    with pytest.raises(BtflError, match="e must be a number from 0 to 1, not 2"):
        halfway(bundle, e=2)


@pytest.mark.slow
def test_the_page_on_python_runs_as_printed(tmp_path: Path) -> None:
    """All of its blocks, one after the other: the later ones use what the first has made."""
    blocks = re.findall(r"```python\n(.*?)```", (README.parent / "docs" / "python.md").read_text(), re.S)
    (tmp_path / "printed.py").write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, "printed.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "has the highest average" in done.stdout
    assert "Coherent (ours) minus each method" in done.stdout
    assert re.search(r"^Halfway is .* the best of the others on average", done.stdout, re.M)
    for path in ("runs/demo-sweep/report.html", "accuracy.png", "stream.png"):
        assert (tmp_path / path).stat().st_size > 0


def test_the_protection_of_privacy_clips_and_adds_noise_as_printed(tmp_path: Path) -> None:
    protection = _block("privacy.md", tmp_path)["ClippedAndNoisy"](length=2.0, sigma=0.1)
    assert np.linalg.norm(protection.features(np.ones((3, 16))), axis=1).max() <= 2.0 + 1e-12
    features, labels = np.abs(np.random.default_rng(0).normal(size=(30, 8))), np.arange(30) % 3
    noisy = Summary.of(features, labels, classes=3, protection=protection)
    noisy.check(3, 8, exact=False)
    assert not noisy.has_copies
    assert (noisy.to_arrays()["class_counts"] != 10).all()
    bundle = ClientBundle.of(np.eye(3, 8), np.eye(3, 8), Summary.of(features, labels, classes=3), noisy)
    assert np.isfinite(Coherent(bundle).predict(features)).all()


def _block(page: str, folder: Path) -> dict[str, Any]:
    """Return the names that a page's Python defines."""
    (code,) = re.findall(r"```python\n(.*?)```", (README.parent / "docs" / page).read_text(), re.S)
    file = folder / "printed.py"
    file.write_text(code)
    return runpy.run_path(str(file))


def _bundle() -> tuple[ClientBundle, np.ndarray[Any, np.dtype[np.float64]]]:
    features, labels = np.abs(np.random.default_rng(0).normal(size=(60, 8))), np.arange(60) % 3
    own, other = (Summary.of(features[rows], labels[rows], classes=3) for rows in (slice(30), slice(30, 60)))
    return ClientBundle.of(np.eye(3, 8), 2 * np.eye(3, 8), own, own + other, features=features[:30]), features


def test_every_page_links_to_the_glossary() -> None:
    for page in (README, *README.parent.glob("docs/*.md")):
        assert page.name == "glossary.md" or "glossary.md" in page.read_text(), f"{page.name} has no link to it"
