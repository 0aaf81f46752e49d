"""A method that was written for 0.1, with the names of its documentation, still runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from btfl.core.heads import probabilities
from btfl.errors import BtflError
from btfl.methods.registry import find_method
from btfl.runs.client import DeployedClient
from making import make_bundle, make_stream

HALFWAY = '''
import numpy as np
from btfl.adapters.base import Adapter
from btfl.adapters.heads import probabilities


class Halfway(Adapter):
    """Trusts both heads the same, or as much as it is told to."""

    takes = "features"  # of the shared extractor; "images" for a method that changes the network
    recipe = "fedavg"  # the training it stands on
    mixes_two_heads = True  # so the oracle is its ceiling
    summary = "a fixed mixture of both heads"

    def __init__(self, client, e=0.5):
        super().__init__(client)
        self.e = e

    def predict(self, batch):
        bundle = self.client.bundle
        self.seen = len(batch)
        return self.e * probabilities(bundle.global_head, batch) + (1 - self.e) * probabilities(
            bundle.personal_head, batch
        )

    @property
    def trace(self):
        return {"e": np.full(self.seen, self.e)}


class AnyKeyword(Halfway):
    def __init__(self, client, **settings):
        super().__init__(client, **settings)
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "method_of_0_1.py").write_text(HALFWAY)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_method_of_0_1_is_found_built_and_used() -> None:
    bundle = make_bundle()
    stream = make_stream(bundle)
    variant = find_method("method_of_0_1:Halfway[e=0.8]")
    variant.check()
    assert (variant.title, variant.trained_with) == ("Halfway [e=0.8]", "fedavg")
    assert variant.card.summary == "a fixed mixture of both heads"
    method = variant.build(DeployedClient(bundle))
    by_global, by_personal = (probabilities(head, stream) for head in (bundle.global_head, bundle.personal_head))
    np.testing.assert_array_equal(method.predict(stream), 0.8 * by_global + (1 - 0.8) * by_personal)
    np.testing.assert_array_equal(method.trace["e"], np.full(len(stream), 0.8))
    method.reset()
    assert method.state == {}
    method.restore({})
    assert [(knob.name, knob.default) for knob in variant.method.knobs()] == [("e", 0.5)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_settings_it_does_not_have_are_refused_unless_it_takes_any() -> None:
    with pytest.raises(BtflError, match=r"unknown setting of Halfway 'f'\. .*Known: e"):
        find_method("method_of_0_1:Halfway[f=1]").check()
    find_method("method_of_0_1:AnyKeyword[f=1]").check()
    with pytest.raises(BtflError, match="cannot be built with"):
        find_method("method_of_0_1:AnyKeyword[f=1]").build(DeployedClient(make_bundle()))


@pytest.mark.parametrize(
    ("module", "new"),
    [
        ("btfl.adapters", "btfl.adapters is now btfl.methods"),
        ("btfl.adapters.base", "is now btfl.methods.base.Method"),
        ("btfl.adapters.heads", "is now btfl.core.heads"),
    ],
)
def test_an_old_name_says_the_new_one_where_it_is_imported(tmp_path: Path, module: str, new: str) -> None:
    script = tmp_path / "user.py"
    script.write_text(f"import {module}\n")
    run = subprocess.run([sys.executable, "-W", "always", script], check=True, capture_output=True, text=True)
    assert new in run.stderr
    assert f"user.py:1: DeprecationWarning: {module}" in run.stderr
