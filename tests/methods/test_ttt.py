"""TTT: every sample teaches the network to tell its rotations apart, for the samples after it and no other stream."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from btfl.errors import InputError
from btfl.methods.registry import find_method
from btfl.methods.ttt import TestTimeTraining
from btfl.methods.tuning import draws_for
from btfl.models import to_arrays
from btfl.models.forward import logits
from btfl.models.rotations import rotated_every_way
from btfl.pixels.images import crop_and_flip, to_tensor
from btfl.pixels.types import Images
from small import images_of, train_small


@pytest.fixture
def adapter() -> TestTimeTraining:
    return TestTimeTraining(train_small("ttt").client(0))


@torch.no_grad()
def rotation_loss(adapter: TestTimeTraining, images: Images) -> float:
    turned, turns = rotated_every_way(to_tensor(images))
    return float(nn.functional.cross_entropy(adapter.rotation(adapter.network.features(turned)), turns))


def test_its_steps_lower_the_rotation_loss_of_what_it_has_seen(adapter: TestTimeTraining) -> None:
    images = images_of(0, 40)
    before = rotation_loss(adapter, images)
    adapter.predict(images)
    assert rotation_loss(adapter, images) < before


def test_each_step_lowers_the_loss_of_the_copies_it_is_made_on(adapter: TestTimeTraining) -> None:
    for image in images_of(0):
        copies = crop_and_flip(np.repeat(image[None], 8, axis=0), draws_for(image, 0, "ttt"))
        before = rotation_loss(adapter, copies)
        assert adapter.learn(image) == [pytest.approx(before, rel=1e-5)]
        assert rotation_loss(adapter, copies) < before


def test_steps_carry_over_to_the_next_sample(adapter: TestTimeTraining) -> None:
    first, second = images_of(0, 2)
    alone = adapter.predict(second[None])
    adapter.reset()
    adapter.predict(first[None])
    assert not np.array_equal(adapter.predict(second[None]), alone)


def test_steps_do_not_carry_over_to_the_next_stream(adapter: TestTimeTraining) -> None:
    network, rotation = to_arrays(adapter.network), to_arrays(adapter.rotation)
    once = adapter.predict(images_of(0))
    adapter.reset()
    for arrays, module in ((network, adapter.network), (rotation, adapter.rotation)):
        assert all(np.array_equal(array, arrays[name]) for name, array in to_arrays(module).items())
    assert np.array_equal(adapter.predict(images_of(0)), once)


def test_it_starts_from_the_finetuned_network_and_leaves_the_clients_own_alone() -> None:
    client = train_small("ttt").client(1)
    kept = {name: array.copy() for name, array in client.networks["finetuned"].items()}
    adapter = TestTimeTraining(client, learning_rate=1e-12)
    expected = torch.from_numpy(logits(client.network("finetuned"), images_of(1))).softmax(1).numpy()
    np.testing.assert_allclose(adapter.predict(images_of(1)), expected, atol=1e-5)
    TestTimeTraining(client, learning_rate=0.5).predict(images_of(1))
    assert all(np.array_equal(array, client.networks["finetuned"][name]) for name, array in kept.items())


def test_the_classifier_itself_is_not_touched(adapter: TestTimeTraining) -> None:
    before = adapter.network.head.weight.detach().clone()
    body = to_arrays(adapter.network.extractor)
    adapter.predict(images_of(0))
    assert torch.equal(adapter.network.head.weight, before)
    assert any(not np.array_equal(array, body[name]) for name, array in to_arrays(adapter.network.extractor).items())


def test_how_the_stream_is_cut_does_not_matter(adapter: TestTimeTraining) -> None:
    images = images_of(0, 12)
    whole = adapter.predict(images)
    adapter.reset()
    pieces = [adapter.predict(images[start : start + 5]) for start in range(0, 12, 5)]
    assert np.array_equal(np.concatenate(pieces), whole)


def test_it_gives_probabilities(adapter: TestTimeTraining) -> None:
    answers = adapter.predict(images_of(0))
    assert answers.shape == (24, 10)
    np.testing.assert_allclose(answers.sum(1), 1.0)


def test_a_network_without_a_rotation_head_is_refused() -> None:
    with pytest.raises(InputError, match="without a rotation head"):
        find_method("ttt").build(train_small("fedavg").client(0))


@pytest.mark.parametrize("setting", ["steps=0", "learning_rate=0", "copies=none", "learning_rate=fast"])
def test_settings_out_of_range_are_named(setting: str) -> None:
    with pytest.raises(InputError, match=setting.split("=")[0]):
        find_method(f"ttt[{setting}]").build(train_small("ttt").client(0))
