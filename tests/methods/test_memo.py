"""MEMO: surer and more consistent over a sample's variants, and as before when the sample is done."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from btfl.errors import InputError
from btfl.methods.memo import Memo, marginal_entropy
from btfl.methods.registry import find_method
from btfl.models import to_arrays
from btfl.models.inputs import to_tensor
from btfl.models.tuning import draws_for
from btfl.pixels.augmix import augmix
from btfl.pixels.types import Images
from small import images_of, train_small


@pytest.fixture
def memo() -> Memo:
    return Memo(train_small("fedavg").client(0))


def test_marginal_entropy_is_low_only_if_predictions_are_sure_and_agree() -> None:
    sure, other, unsure = torch.tensor([50.0, 0.0]), torch.tensor([0.0, 50.0]), torch.tensor([0.0, 0.0])
    assert float(marginal_entropy(torch.stack([sure, sure]))) == pytest.approx(0.0, abs=1e-6)
    assert float(marginal_entropy(torch.stack([sure, other]))) == pytest.approx(math.log(2))
    assert float(marginal_entropy(torch.stack([unsure, unsure]))) == pytest.approx(math.log(2))


@torch.no_grad()
def entropy_over(memo: Memo, variants: Images) -> float:
    return float(marginal_entropy(memo.network(to_tensor(variants))))


def test_each_step_lowers_the_marginal_entropy_of_the_variants_it_is_made_on() -> None:
    memo = Memo(train_small("fedavg").client(0), steps=1)
    for image in images_of(0):
        variants = augmix(image, 32, draws_for(image, 0, "memo"))
        before = entropy_over(memo, variants)
        assert memo.tune(image) == [pytest.approx(before, rel=1e-5)]
        assert entropy_over(memo, variants) < before


def test_its_steps_lower_the_marginal_entropy_of_other_variants_too(memo: Memo) -> None:
    before, after = [], []
    for number, image in enumerate(images_of(0)):
        variants = augmix(image, 64, np.random.default_rng(number))
        before.append(entropy_over(memo, variants))
        assert len(memo.tune(image)) == 3
        after.append(entropy_over(memo, variants))
        memo.reset()
    assert np.mean(after) < np.mean(before)


def test_more_and_larger_steps_lower_it_further() -> None:
    entropies = Memo(train_small("fedavg").client(0), steps=12, learning_rate=0.01).tune(images_of(0)[0])
    assert entropies[-1] < 0.7 * entropies[0]


def test_after_each_sample_the_weights_are_as_they_were_to_the_bit(memo: Memo) -> None:
    before = to_arrays(memo.network)
    memo.tune(images_of(0)[0])
    assert any(not np.array_equal(array, before[name]) for name, array in to_arrays(memo.network).items())
    memo.reset()
    for image in images_of(0, 4):
        memo.predict(image[None])
        assert all(np.array_equal(array, before[name]) for name, array in to_arrays(memo.network).items())


def test_the_weights_are_put_back_even_if_a_sample_fails(memo: Memo) -> None:
    before = to_arrays(memo.network)
    with pytest.raises(RuntimeError):
        memo.predict(np.zeros((1, 12, 12, 1), np.uint8))
    assert all(np.array_equal(array, before[name]) for name, array in to_arrays(memo.network).items())


def test_the_order_of_samples_and_the_cut_of_the_stream_do_not_matter(memo: Memo) -> None:
    images = images_of(0, 10)
    whole = memo.predict(images)
    assert np.array_equal(memo.predict(images[::-1])[::-1], whole)
    assert np.array_equal(np.concatenate([memo.predict(images[:3]), memo.predict(images[3:])]), whole)


def test_two_runs_are_equal_and_another_seed_is_not() -> None:
    client, images = train_small("fedavg").client(2), images_of(2, 4)
    assert np.array_equal(Memo(client).predict(images), Memo(client).predict(images))
    assert not np.array_equal(Memo(client, seed=1).predict(images), Memo(client).predict(images))


def test_it_gives_probabilities_of_the_tuned_network(memo: Memo) -> None:
    images = images_of(0)
    answers = memo.predict(images)
    np.testing.assert_allclose(answers.sum(1), 1.0)
    finetuned = find_method("fedavg-ft").build(train_small("fedavg").client(0)).predict(images)
    assert np.abs(answers - finetuned).max() > 1e-6
    np.testing.assert_allclose(answers, finetuned, atol=0.05)


@pytest.mark.parametrize("setting", ["steps=0", "learning_rate=-1", "augmentations=1.5"])
def test_settings_out_of_range_are_named(setting: str) -> None:
    with pytest.raises(InputError, match=setting.split("=")[0]):
        find_method(f"memo[{setting}]").build(train_small("fedavg").client(0))


def test_a_caller_that_wants_no_gradients_changes_nothing(memo: Memo) -> None:
    answers = memo.predict(images_of(0, 3))
    with torch.no_grad():
        assert np.array_equal(memo.predict(images_of(0, 3)), answers)
