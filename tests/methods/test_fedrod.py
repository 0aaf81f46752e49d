"""FedRoD at test time, and the table's rows that stand on recipes of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from btfl.core.softmax import log_softmax
from btfl.errors import BtflError
from btfl.methods.fedrod import FedRoD
from btfl.methods.registry import METHODS
from btfl.recipes.registry import RECIPES
from btfl.runs.client import DeployedClient
from making import make_bundle, make_stream


@pytest.mark.parametrize("bias", [False, True])
def test_it_is_the_softmax_of_the_summed_logits(bias: bool) -> None:
    rng, bundle = np.random.default_rng(0), make_bundle(bias=bias)
    head = {"rod_head.weight": rng.normal(size=bundle.global_head.weight.shape), "rod_head.bias": rng.normal(size=4)}
    stream = make_stream(bundle)
    both = bundle.global_head.logits(stream) + stream @ head["rod_head.weight"].T + head["rod_head.bias"]
    found = FedRoD(DeployedClient(replace(bundle, statistics=head))).predict(stream)
    np.testing.assert_allclose(found, np.exp(log_softmax(both)), atol=1e-12)


def test_a_client_of_another_recipe_is_refused_with_the_right_one() -> None:
    with pytest.raises(BtflError, match="balanced"):
        FedRoD(DeployedClient(make_bundle()))


@pytest.mark.parametrize("name", ["fedrep", "fedrod", "knn-per", "fedthe", "fedthe-on-fedavg", "fedthe-plus"])
def test_the_recipe_of_each_method_can_be_trained(name: str) -> None:
    assert METHODS[name].trained_with in RECIPES
