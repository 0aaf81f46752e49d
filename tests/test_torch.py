"""``btfl.torch``: any module's features, and backbone, bundle and method as one module that equals the method."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import btfl.torch
from btfl import Btfl, ClientBundle, Coherent, Summary
from btfl.errors import InputError
from btfl.methods.base import Method
from btfl.methods.heads import PersonalHead
from making import make_client

CLASSES, WIDTH, SAMPLES = 4, 12, 90
METHODS: dict[str, Any] = {"btfl": Btfl, "coherent": Coherent}


def make_backbone() -> nn.Module:
    """A small backbone with signed features, dropout and BatchNorm, so that a wrong mode would show."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(10, WIDTH), nn.BatchNorm1d(WIDTH), nn.GELU(), nn.Dropout(0.5)
        ).eval()


def make_inputs(samples: int = SAMPLES) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).normal(size=(samples, 2, 5)).astype(np.float32))


def make_bundle(backbone: nn.Module) -> ClientBundle:
    rng = np.random.default_rng(2)
    z, y = btfl.torch.features(backbone, make_inputs()), rng.integers(CLASSES, size=SAMPLES)
    own = Summary.of(z[:40], y[:40] // 2, CLASSES)
    heads = rng.normal(size=(2, CLASSES, WIDTH))
    everyone = own + Summary.of(z[40:], y[40:], CLASSES)
    return ClientBundle.of(heads[0], heads[1], own, everyone, features=z[:40])


@pytest.fixture(scope="module")
def parts() -> tuple[nn.Module, ClientBundle]:
    backbone = make_backbone()
    return backbone, make_bundle(backbone)


def alone(method: Method, backbone: nn.Module, inputs: torch.Tensor, sizes: list[int]) -> np.ndarray:
    """The method itself on the backbone's features, in the same batches."""
    batches = [batch for batch in inputs.split(sizes) if len(batch)]  # type: ignore[no-untyped-call]
    with torch.no_grad():
        return np.concatenate([method.predict(backbone(batch).double().numpy()) for batch in batches])


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, SAMPLES), max_size=6), inference=st.booleans())
def test_it_equals_the_method_to_the_bit_in_batches_of_any_size(name: str, cuts: list[int], inference: bool) -> None:
    backbone = make_backbone()
    bundle, inputs = make_bundle(backbone), make_inputs()
    sizes = np.diff([0, *sorted(cuts), SAMPLES]).tolist()
    model = btfl.torch.Adapted(backbone, METHODS[name](bundle))
    with torch.inference_mode(inference):
        given = torch.cat([model(batch) for batch in inputs.split(sizes)])  # type: ignore[no-untyped-call]
    expected = METHODS[name](bundle)
    np.testing.assert_array_equal(given.numpy(), alone(expected, backbone, inputs, sizes))
    assert model.state == expected.state
    assert given.dtype == torch.float64


@pytest.mark.parametrize("name", METHODS)
def test_the_state_goes_out_and_in_as_json(name: str, parts: tuple[nn.Module, ClientBundle]) -> None:
    backbone, bundle = parts
    inputs, whole = make_inputs(), btfl.torch.Adapted(backbone, METHODS[name](bundle))
    first, last = whole(inputs[:50]), whole(inputs[50:])
    one, other = (btfl.torch.Adapted(backbone, METHODS[name](bundle)) for _ in range(2))
    assert torch.equal(one(inputs[:50]), first)
    other.restore(json.loads(json.dumps(one.state)))
    assert torch.equal(other(inputs[50:]), last)
    assert other.state == whole.state
    other.reset()
    assert torch.equal(other(inputs[:50]), first)
    assert len(other.trace["e"]) == 50


def test_an_empty_batch_is_no_sample(parts: tuple[nn.Module, ClientBundle]) -> None:
    model = btfl.torch.Adapted(parts[0], Coherent(parts[1]))
    before = model.state
    assert model(make_inputs(0)).shape == (0, CLASSES)
    assert model.state == before
    assert model(make_inputs(1)).shape == (1, CLASSES)


def test_nothing_is_trained_and_the_mode_stays(parts: tuple[nn.Module, ClientBundle]) -> None:
    backbone, bundle = copy.deepcopy(parts[0]).train(), parts[1]
    model = btfl.torch.Adapted(backbone, Btfl(bundle))
    model.train()
    assert not any(module.training for module in model.modules())
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert not model(make_inputs()).requires_grad
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert all(name.startswith("backbone.") for name in weights)


def test_a_copy_has_a_memory_of_its_own(parts: tuple[nn.Module, ClientBundle]) -> None:
    model = btfl.torch.Adapted(parts[0], Coherent(parts[1]))
    other = copy.deepcopy(model)
    other(make_inputs())
    assert (model.state["seen"], other.state["seen"]) == (0, SAMPLES)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_other_types_of_numbers(dtype: torch.dtype, error: float, parts: tuple[nn.Module, ClientBundle]) -> None:
    backbone, bundle = parts
    exact = btfl.torch.Adapted(backbone, Btfl(bundle))(make_inputs())
    given = btfl.torch.Adapted(backbone, Btfl(bundle), dtype=dtype)(make_inputs())
    assert given.dtype == dtype
    assert float((given.double() - exact).abs().max()) <= error
    half = btfl.torch.Adapted(copy.deepcopy(backbone).to(dtype), Btfl(bundle))(make_inputs().to(dtype))
    torch.testing.assert_close(half.sum(dim=1), torch.ones(SAMPLES, dtype=torch.float64))


def test_it_says_what_it_is(parts: tuple[nn.Module, ClientBundle]) -> None:
    told = repr(btfl.torch.Adapted(parts[0], Coherent(parts[1])))
    assert "Coherent(ClientBundle(4 classes, 12 dimensions" in told
    assert "GELU" in told


class Gives(nn.Module):
    """Returns what it was told to."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.value(inputs)


WRONG = {
    "positions are left": (
        lambda x: x.reshape(len(x), 5, 2, 1),
        r"\(3, 5, 2, 1\) for 3 samples, not features",
    ),
    "one row only": (lambda x: x.flatten(1)[:1], r"returned \(1, 10\) for 3 samples"),
    "flat": (lambda x: x.sum((1, 2)), r"returned \(3,\) for 3 samples"),
    "no features": (lambda x: x.flatten(1)[:, :0], r"returned \(3, 0\) for 3 samples"),
    "a tuple": (lambda x: (x.flatten(1), None), "returned a tuple, not one tensor"),
    "whole numbers": (lambda x: x.flatten(1).long(), "torch.int64, not floating-point"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_module_whose_output_is_not_n_d_is_told_so(case: str, parts: tuple[nn.Module, ClientBundle]) -> None:
    value, message = WRONG[case]
    with pytest.raises(InputError, match=message):
        btfl.torch.features(Gives(value), make_inputs(3))
    with pytest.raises(InputError, match=message):
        btfl.torch.Adapted(Gives(value), Coherent(parts[1]))(make_inputs(3))


def test_what_cannot_be_wrapped_is_refused(parts: tuple[nn.Module, ClientBundle]) -> None:
    backbone, bundle = parts
    wrong: list[tuple[Any, Any, Any, str]] = [
        (backbone, bundle, torch.float64, r"btfl.Coherent\(bundle\)"),
        (lambda x: x, Btfl(bundle), torch.float64, "must be a torch.nn.Module, not a function"),
        (backbone, "coherent", torch.float64, "built for a bundle"),
        (backbone, Btfl(bundle), torch.int64, "floating-point"),
    ]
    for module, method, dtype, message in wrong:
        with pytest.raises(InputError, match=message):
            btfl.torch.Adapted(module, method, dtype=dtype)
    with pytest.raises(InputError, match="returned 10 features a sample, but 12 are expected"):
        btfl.torch.Adapted(nn.Flatten(), Btfl(bundle))(make_inputs(2))


def test_methods_that_take_images_have_their_own_network_and_are_refused() -> None:
    from btfl.methods.tent import Tent

    with pytest.raises(InputError, match="takes features"):
        btfl.torch.Adapted(nn.Flatten(), Tent(make_client()))
    assert btfl.torch.Adapted(nn.Flatten(), PersonalHead(make_client())).state == {}


def test_features_come_in_order_from_tensors_arrays_and_loaders() -> None:
    backbone = make_backbone()
    inputs = make_inputs(600)
    with torch.no_grad():
        expected = backbone(inputs).numpy()
    labelled = torch.utils.data.TensorDataset(inputs, torch.arange(600))
    sources: list[Any] = [
        inputs,
        inputs.numpy(),
        [inputs[:7], inputs[7:7], inputs[7:]],
        torch.utils.data.DataLoader(labelled, batch_size=64),
    ]
    for source in sources:
        found = btfl.torch.features(backbone, source)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_features_leave_the_module_as_it_was() -> None:
    backbone = make_backbone()
    backbone.train()
    backbone[2].eval()  # type: ignore[index]
    modes = [module.training for module in backbone.modules()]
    weights = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    btfl.torch.features(backbone, make_inputs())
    assert [module.training for module in backbone.modules()] == modes
    assert all(torch.equal(tensor, weights[name]) for name, tensor in backbone.state_dict().items())
    with pytest.raises(InputError, match="returned"):
        btfl.torch.features(nn.Sequential(backbone, nn.Unflatten(1, (3, 4))), make_inputs())
    assert [module.training for module in backbone.modules()] == modes


@pytest.mark.parametrize(
    ("batches", "message"), [([], "no sample"), (make_inputs(0), "no sample"), (["text"], "not a str"), ([()], "tuple")]
)
def test_batches_that_are_none_are_refused(batches: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        btfl.torch.features(nn.Flatten(), batches)
