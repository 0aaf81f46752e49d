"""TTT: every sample teaches the network to tell its rotations apart, for the samples after it and no other stream."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from btfl.errors import InputError
from btfl.methods.registry import find_method
from btfl.methods.ttt import TestTimeTraining
from btfl.models import to_arrays
from btfl.models.forward import logits
from btfl.models.inputs import to_tensor
from btfl.models.rotations import rotated_every_way
from btfl.models.tuning import draws_for
from btfl.pixels.images import crop_and_flip
from btfl.pixels.types import Images
from small import images_of, train_small


@pytest.fixture
def method() -> TestTimeTraining:
    return TestTimeTraining(train_small("ttt").client(0))


@torch.no_grad()
def rotation_loss(method: TestTimeTraining, images: Images) -> float:
    turned, turns = rotated_every_way(to_tensor(images))
    return float(nn.functional.cross_entropy(method.rotation(method.network.features(turned)), turns))


def test_its_steps_lower_the_rotation_loss_of_what_it_has_seen(method: TestTimeTraining) -> None:
    images = images_of(0, 40)
    before = rotation_loss(method, images)
    method.predict(images)
    assert rotation_loss(method, images) < before


def test_each_step_lowers_the_loss_of_the_copies_it_is_made_on(method: TestTimeTraining) -> None:
    for image in images_of(0):
        copies = crop_and_flip(np.repeat(image[None], 8, axis=0), draws_for(image, 0, "ttt"))
        before = rotation_loss(method, copies)
        assert method.learn(image) == [pytest.approx(before, rel=1e-5)]
        assert rotation_loss(method, copies) < before


def test_steps_carry_over_to_the_next_sample(method: TestTimeTraining) -> None:
    first, second = images_of(0, 2)
    alone = method.predict(second[None])
    method.reset()
    method.predict(first[None])
    assert not np.array_equal(method.predict(second[None]), alone)


def test_steps_do_not_carry_over_to_the_next_stream(method: TestTimeTraining) -> None:
    network, rotation = to_arrays(method.network), to_arrays(method.rotation)
    once = method.predict(images_of(0))
    method.reset()
    for arrays, module in ((network, method.network), (rotation, method.rotation)):
        assert all(np.array_equal(array, arrays[name]) for name, array in to_arrays(module).items())
    assert np.array_equal(method.predict(images_of(0)), once)


def test_it_starts_from_the_finetuned_network_and_leaves_the_clients_own_alone() -> None:
    client = train_small("ttt").client(1)
    kept = {name: array.copy() for name, array in client.networks["finetuned"].items()}
    method = TestTimeTraining(client, learning_rate=1e-12)
    expected = torch.from_numpy(logits(client.network("finetuned"), images_of(1))).softmax(1).numpy()
    np.testing.assert_allclose(method.predict(images_of(1)), expected, atol=1e-5)
    TestTimeTraining(client, learning_rate=0.5).predict(images_of(1))
    assert all(np.array_equal(array, client.networks["finetuned"][name]) for name, array in kept.items())


def test_the_classifier_itself_is_not_touched(method: TestTimeTraining) -> None:
    before = method.network.head.weight.detach().clone()
    body = to_arrays(method.network.extractor)
    method.predict(images_of(0))
    assert torch.equal(method.network.head.weight, before)
    assert any(not np.array_equal(array, body[name]) for name, array in to_arrays(method.network.extractor).items())


def test_how_the_stream_is_cut_does_not_matter(method: TestTimeTraining) -> None:
    images = images_of(0, 12)
    whole = method.predict(images)
    method.reset()
    pieces = [method.predict(images[start : start + 5]) for start in range(0, 12, 5)]
    assert np.array_equal(np.concatenate(pieces), whole)


def test_it_gives_probabilities(method: TestTimeTraining) -> None:
    answers = method.predict(images_of(0))
    assert answers.shape == (24, 10)
    np.testing.assert_allclose(answers.sum(1), 1.0)


def test_a_network_without_a_rotation_head_is_refused() -> None:
    with pytest.raises(InputError, match="without a rotation head"):
        find_method("ttt").build(train_small("fedavg").client(0))


@pytest.mark.parametrize("setting", ["steps=0", "learning_rate=0", "copies=none", "learning_rate=fast"])
def test_settings_out_of_range_are_named(setting: str) -> None:
    with pytest.raises(InputError, match=setting.split("=")[0]):
        find_method(f"ttt[{setting}]").build(train_small("ttt").client(0))
