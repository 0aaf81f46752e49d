"""TTT's training: one network learns classes and rotations, and both heads travel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from btfl.core.client import split_auxiliary
from btfl.engines.federation import train_federation
from btfl.engines.local import LocalEngine
from btfl.errors import InputError
from btfl.models import build, to_arrays
from btfl.models.forward import logits
from btfl.models.inputs import to_tensor
from btfl.models.rotations import rotated, rotated_every_way, rotation_head
from btfl.recipes.registry import make_recipe
from btfl.recipes.settings import TrainingSettings
from btfl.recipes.ttt import TTT
from btfl.runs.trained import TrainedFederation
from small import digits, train_small

SETTINGS = TrainingSettings.for_model("mlp", rounds=2, local_epochs=2)
HEAD = {"auxiliary.rotation.weight", "auxiliary.rotation.bias"}


@pytest.fixture(scope="module")
def trained() -> TrainedFederation:
    return train_small("ttt", rounds=4, local_epochs=4)


def test_images_are_turned_as_numpy_turns_them() -> None:
    images = np.random.default_rng(0).integers(256, size=(8, 6, 6, 3), dtype=np.uint8)
    turns = np.arange(8) % 4
    expected = np.stack([np.rot90(image, int(turn)) for image, turn in zip(images, turns, strict=True)])
    turned = rotated(to_tensor(images), torch.from_numpy(turns))
    assert torch.equal(turned, to_tensor(expected))
    every, labels = rotated_every_way(to_tensor(images[:1]))
    assert torch.equal(every, to_tensor(np.stack([np.rot90(images[0], turn) for turn in range(4)])))
    assert labels.tolist() == [0, 1, 2, 3]


def test_the_federation_learns_to_tell_rotations_apart(trained: TrainedFederation) -> None:
    client = trained.client(0)
    network, head = client.network("global"), rotation_head(client.auxiliary("global", "rotation"))
    images = np.concatenate([digits().of(number, 0).validation.values for number in range(4)])
    with torch.no_grad():
        turned, turns = rotated_every_way(to_tensor(images))
        right = head(network.features(turned)).argmax(1) == turns
    assert float(right.float().mean()) > 0.7


def test_the_federation_learns_the_classes_too(trained: TrainedFederation) -> None:
    data = [digits().of(number, 0).validation for number in range(4)]
    network = trained.client(0).network("global")
    right = np.concatenate([logits(network, part.values).argmax(1) == part.labels for part in data])
    assert right.mean() > 0.7


def test_rotations_shape_the_extractor_and_not_only_their_own_head() -> None:
    joint, plain = train_small("ttt"), train_small("fedavg")
    assert set(joint.shared) == set(plain.shared) | HEAD
    assert not np.allclose(joint.shared["extractor.fc1.weight"], plain.shared["extractor.fc1.weight"], atol=1e-4)


def test_both_networks_load_with_and_without_the_rotation_head(trained: TrainedFederation) -> None:
    client = trained.client(1)
    for name in ("global", "finetuned"):
        own, heads = split_auxiliary(client.networks[name])
        network = to_arrays(client.network(name))
        assert all(np.array_equal(network[key], own[key]) for key in own)
        assert set(heads) == {"rotation.weight", "rotation.bias"}
        assert client.auxiliary(name, "rotation")["weight"].shape == (4, 64)
    shared, finetuned = (client.auxiliary(name, "rotation")["weight"] for name in ("global", "finetuned"))
    assert not np.array_equal(shared, finetuned)
    with pytest.raises(InputError, match="without a jigsaw head"):
        client.auxiliary("global", "jigsaw")


def test_the_rotation_head_is_uploaded_and_the_personal_head_is_not() -> None:
    recipe = TTT(SETTINGS, (8, 8, 1), 10)
    update = recipe.train(1, recipe.initial(), {}, digits().of(0, 1))
    network = build("mlp", (8, 8, 1), 10, 0)
    assert set(update.upload) == set(to_arrays(network)) | HEAD
    assert set(update.private) == {"personal_head.weight"}
    assert update.metrics["rotation_accuracy"] > 0.3


def test_a_client_starts_from_the_heads_it_is_sent() -> None:
    recipe = TTT(TrainingSettings.for_model("mlp", learning_rate=0.0, momentum=0.0), (8, 8, 1), 10)
    shared = {name: array + np.float32(0.125) for name, array in recipe.initial().items()}
    upload = recipe.train(1, shared, {}, digits().of(0, 1)).upload
    assert upload.keys() == shared.keys()
    assert all(np.array_equal(array, upload[name]) for name, array in shared.items())


def test_the_network_starts_where_fedavg_starts() -> None:
    joint, plain = (make_recipe(name, SETTINGS, (8, 8, 1), 10).initial() for name in ("ttt", "fedavg"))
    assert all(np.array_equal(array, joint[name]) for name, array in plain.items())
    other = TTT(TrainingSettings.for_model("mlp", seed=1), (8, 8, 1), 10).initial()
    assert not np.array_equal(joint["auxiliary.rotation.weight"], other["auxiliary.rotation.weight"])


def test_two_runs_give_the_same_weights_and_a_saved_one_comes_back(tmp_path: Path) -> None:
    first = train_small("ttt")
    settings = TrainingSettings.for_model("mlp", rounds=2, local_epochs=2, augment=False)
    again = train_federation(make_recipe("ttt", settings, (8, 8, 1), 10), digits(), LocalEngine())
    again.save(tmp_path)
    loaded = TrainedFederation.load(tmp_path)
    for number in range(4):
        for name, weights in first.client(number).networks.items():
            same = loaded.client(number).networks[name]
            assert same.keys() == weights.keys()
            assert all(np.array_equal(array, same[key]) for key, array in weights.items())


def test_images_that_are_not_square_are_refused() -> None:
    with pytest.raises(InputError, match="must be square, not 8x12"):
        make_recipe("ttt", SETTINGS, (8, 12, 1), 10)


def test_as_released_the_federation_is_fedavg_s_and_rotations_are_learnt_at_home() -> None:
    plain, released = train_small("fedavg"), train_small("ttt-release")
    assert released.shared.keys() == plain.shared.keys()
    assert all(np.array_equal(array, released.shared[name]) for name, array in plain.shared.items())
    assert np.array_equal(released.client(0).bundle.personal_head.weight, plain.client(0).bundle.personal_head.weight)
    for number in range(4):
        client, own = released.client(number), digits().of(number, 0).validation
        assert set(client.networks["finetuned"]) == set(plain.shared) | HEAD
        network, head = client.network("finetuned"), rotation_head(client.auxiliary("finetuned", "rotation"))
        with torch.no_grad():
            turned, turns = rotated_every_way(to_tensor(own.values))
            right = head(network.features(turned)).argmax(1) == turns
        assert float(right.float().mean()) > 0.4
