"""Tent: entropy goes down by the normalisation layers alone; without any there is nothing to do, and it says so."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from btfl.errors import InputError
from btfl.methods.registry import find_method
from btfl.methods.tent import Tent, mean_entropy, normalisation_layers
from btfl.models import to_arrays
from btfl.models.forward import logits
from btfl.models.inputs import to_tensor
from small import images_of, train_small, untrained


@pytest.fixture
def tent() -> Tent:
    return Tent(train_small("fedavg", "resnet20", 1, 1).client(0))


def test_only_scales_and_shifts_of_normalisation_change(tent: Tent) -> None:
    before = to_arrays(tent.network)
    tent.predict(images_of(0))
    changed = {name for name, array in to_arrays(tent.network).items() if not np.array_equal(array, before[name])}
    assert changed
    assert all("norm" in name for name in changed)
    assert {name for name, parameter in tent.network.named_parameters() if parameter.requires_grad} == {
        name for name in before if "norm" in name
    }


def test_steps_lower_the_entropy(tent: Tent) -> None:
    images = to_tensor(images_of(0))
    with torch.no_grad():
        before = float(mean_entropy(tent.network(images)))
    for _ in range(3):
        tent.predict(images_of(0))
    with torch.no_grad():
        assert float(mean_entropy(tent.network(images))) < before


def test_mean_entropy_of_even_and_of_sure_predictions() -> None:
    assert float(mean_entropy(torch.zeros(3, 10))) == pytest.approx(np.log(10))
    assert float(mean_entropy(100 * torch.eye(10))) == pytest.approx(0.0, abs=1e-6)


def test_a_batch_is_answered_before_its_own_step_and_after_those_before_it(tent: Tent) -> None:
    network = train_small("fedavg", "resnet20", 1, 1).client(0).network("global")
    unadapted = torch.from_numpy(logits(network, images_of(0))).softmax(1).numpy()
    np.testing.assert_allclose(tent.predict(images_of(0)), unadapted, atol=1e-5)
    assert np.abs(tent.predict(images_of(0)) - unadapted).max() > 1e-4


def test_reset_undoes_the_steps_and_forgets_their_moments(tent: Tent) -> None:
    before = to_arrays(tent.network)
    streams = []
    for _ in range(2):
        streams.append([tent.predict(images_of(0)[start : start + 8]) for start in (0, 8, 16)])
        tent.reset()
        assert all(np.array_equal(array, before[name]) for name, array in to_arrays(tent.network).items())
    assert np.array_equal(streams[0], streams[1])


@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_it_says_why_it_cannot_tune_a_model_without_normalisation(model: str) -> None:
    client = untrained(model)
    reason = Tent.unsuitable(client)
    assert reason is not None
    assert f"the {model} has no normalisation layer" in reason
    with pytest.raises(InputError, match="no normalisation layer"):
        find_method("tent").build(client)


@pytest.mark.parametrize(("model", "layers"), [("resnet20", 21), ("cct4", 9)])
def test_it_finds_group_and_layer_normalisation(model: str, layers: int) -> None:
    client = untrained(model)
    assert Tent.unsuitable(client) is None
    assert len(normalisation_layers(client.network("global"))) == layers


def test_batch_normalisation_goes_by_the_batch_at_hand() -> None:
    tent = Tent(untrained("small:batch_normed", (8, 8, 1)))
    images, half = images_of(0), images_of(0, 12)
    answers = tent.predict(images)
    tent.reset()
    assert np.abs(tent.predict(half) - answers[:12]).max() > 1e-6
    tent.reset()
    assert np.array_equal(tent.predict(images), answers)


def test_methods_are_suitable_unless_they_say_otherwise() -> None:
    assert find_method("lame").method.unsuitable(untrained("cnn")) is None


@pytest.mark.parametrize("setting", ["steps=0", "learning_rate=0"])
def test_settings_out_of_range_are_named(setting: str) -> None:
    with pytest.raises(InputError, match=setting.split("=")[0]):
        find_method(f"tent[{setting}]").build(untrained("resnet20"))
