"""A network checks its extractor once, and leaves it as it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from btfl.errors import InputError
from btfl.models import Network, to_arrays


def test_a_network_made_by_hand_is_checked_at_its_first_use_only() -> None:
    network = Network(nn.Flatten(), feature_size=4, classes=2, nonnegative=True)
    with pytest.raises(InputError, match="negative feature"):
        network(-torch.ones(1, 1, 2, 2))
    network(torch.ones(1, 1, 2, 2))
    assert float(network.features(-torch.ones(1, 1, 2, 2)).min()) == -1.0  # later batches cost no check


def test_features_may_have_any_sign_but_must_be_finite() -> None:
    network = Network(nn.Flatten(), feature_size=4, classes=2)
    with pytest.raises(InputError, match="NaN or infinite"):
        network(torch.full((1, 1, 2, 2), torch.nan))
    assert float(network.features(-torch.ones(1, 1, 2, 2)).min()) == -1.0


def test_the_dry_run_leaves_statistics_and_modes_alone() -> None:
    extractor = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3), nn.ReLU())
    extractor[1].eval()  # frozen by its user
    network = Network(extractor, feature_size=3, classes=2)
    before = to_arrays(network)
    network.verify((4, 4, 1))
    assert all(np.array_equal(array, before[key]) for key, array in to_arrays(network).items())
    assert [module.training for module in extractor] == [True, False, True, True, True]


def test_a_network_exports_before_it_was_ever_used() -> None:
    network = Network(nn.Sequential(nn.Flatten(), nn.ReLU()), feature_size=4, classes=2).eval()
    batch = torch.ones(2, 1, 2, 2)
    exported = torch.export.export(network, (batch,)).module()
    torch.testing.assert_close(exported(batch), network(batch))
