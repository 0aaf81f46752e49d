"""CCT-4 draws in training only, from the seed of the block, and fits one image size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from btfl.errors import InputError
from btfl.models import build, torch_draws
from btfl.models.cct4 import skipped_at_random
from btfl.randomness import generator


def test_cct4_dropout_follows_the_seed_of_the_block() -> None:
    network = build("cct4", (16, 16, 3), 10, seed=0).train()
    batch = torch.from_numpy(generator(0, "test images").standard_normal((16, 3, 16, 16)).astype(np.float32))

    def run(seed: int) -> torch.Tensor:
        with torch_draws(seed, "train", 3, 1):
            return network(batch)  # type: ignore[no-any-return]

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_cct4_without_dropout_trains_without_drawing() -> None:
    network = build("cct4", (16, 16, 3), 10, seed=0, attention_dropout=0.0, stochastic_depth=0.0)
    batch = torch.from_numpy(generator(0, "test images").standard_normal((16, 3, 16, 16)).astype(np.float32))
    before = torch.get_rng_state()
    training = network.train()(batch)
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(training, network.eval()(batch))


def test_cct4_stochastic_depth_keeps_the_mean_of_a_branch() -> None:
    with torch_draws(0, "test"):
        branch = skipped_at_random(torch.ones(20_000, 1, 1), 0.4)
    kept = branch[branch > 0]
    assert len(kept) / len(branch) == pytest.approx(0.6, abs=0.02)
    assert float(branch.mean()) == pytest.approx(1.0, abs=0.02)
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.6))


def test_cct4_refuses_another_image_size_than_it_was_built_for() -> None:
    network = build("cct4", (32, 32, 3), 10, seed=0)
    with pytest.raises(InputError, match="built for images of 64 tokens"):
        network(torch.zeros(1, 3, 4, 4))
