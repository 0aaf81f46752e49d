"""The core is light: it imports without torch, and quickly."""

from __future__ import annotations

import inspect
import subprocess
import sys

HEAVY = ["torch", "pandas", "matplotlib", "sklearn", "pydantic", "typer", "rich", "PIL", "flwr"]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_the_core_imports_nothing_heavy() -> None:
    assert run(f"import sys, btfl; print([m for m in {HEAVY} if m in sys.modules])").strip() == "[]"


def test_the_core_works_where_nothing_else_is_installed() -> None:
    blocked = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {HEAVY}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocker())
import numpy as np, btfl
likelihood = btfl.DiscretisedLikelihood.fit(np.ones((3, 4)))
bundle = btfl.ClientBundle(np.eye(4), np.eye(4), likelihood, likelihood, 0.5, 0.5)
print(btfl.Btfl(bundle).predict(np.ones((2, 4))).shape)
"""
    assert run(blocked).strip() == "(2, 4)"


def test_it_adds_few_modules_to_numpy_and_scipy() -> None:
    # a count of modules does not depend on how busy the machine is, as a time would
    before = "import sys, numpy, scipy.special, safetensors.numpy; n = len(sys.modules)"
    assert int(run(f"{before}; import btfl; print(len(sys.modules) - n)")) < 60


def test_what_is_public_has_an_example_in_its_docstring() -> None:
    import btfl

    lacking = [
        name
        for name in btfl.__all__
        if name not in ("BtflError", "Trace") and ">>>" not in (inspect.getdoc(getattr(btfl, name)) or "")
    ]
    assert not lacking
