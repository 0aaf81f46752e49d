"""Weights as arrays carry the whole model, or say what does not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from btfl.errors import InputError
from btfl.models import MODELS, build, load_arrays, to_arrays


@pytest.mark.parametrize("name", MODELS)
def test_arrays_carry_the_whole_model(name: str) -> None:
    shape = {"cnn1d": (20, 3), "linear": (20,)}.get(name, (16, 20, 3))
    source, target = (build(name, shape, 10, seed=seed).eval() for seed in (1, 2))
    target.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    strides = [parameter.stride() for parameter in target.parameters()]
    load_arrays(target, to_arrays(source))
    assert all(np.array_equal(array, to_arrays(target)[key]) for key, array in to_arrays(source).items())
    assert [parameter.stride() for parameter in target.parameters()] == strides
    samples = torch.linspace(-2, 2, 4 * math.prod(shape)).reshape(4, *shape).movedim(-1, 1)
    torch.testing.assert_close(target(samples), source(samples), rtol=1e-4, atol=1e-5)


def test_arrays_are_contiguous_copies() -> None:
    network = build("cnn", (32, 32, 3), 10, seed=1)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    arrays = to_arrays(network)
    assert all(array.dtype == np.float32 and array.flags.c_contiguous for array in arrays.values())
    arrays["head.weight"][:] = 0.0
    assert float(network.head.weight.detach().abs().max()) > 0.0
    load_arrays(network, arrays)
    arrays["head.weight"][:] = 1.0
    assert float(network.head.weight.detach().abs().max()) == 0.0


def test_read_only_and_wider_arrays_are_taken() -> None:
    network = build("mlp", (8, 8, 1), 10, seed=1)
    arrays = {key: array.astype(np.float64) for key, array in to_arrays(build("mlp", (8, 8, 1), 10, seed=2)).items()}
    for array in arrays.values():
        array.setflags(write=False)
    load_arrays(network, arrays)
    assert np.array_equal(to_arrays(network)["head.weight"], arrays["head.weight"])


def test_counters_survive_an_average() -> None:
    module = nn.BatchNorm2d(2)
    arrays = to_arrays(module)
    load_arrays(module, {**arrays, "num_batches_tracked": np.float32(2.9999998)})
    assert module.num_batches_tracked is not None
    assert int(module.num_batches_tracked) == 3


def test_every_entry_at_fault_is_named_and_nothing_is_changed() -> None:
    network = build("mlp", (8, 8, 1), 10, seed=1)
    before = to_arrays(network)
    arrays: dict[str, object] = dict(to_arrays(build("mlp", (8, 8, 1), 10, seed=2)))
    del arrays["extractor.fc1.bias"]
    arrays["stray"] = np.zeros(3)
    arrays["head.weight"] = np.zeros((3, 64))
    arrays["extractor.fc2.bias"] = np.full(64, np.nan)
    arrays["extractor.fc2.weight"] = np.full((64, 128), "a")
    with pytest.raises(InputError) as caught:
        load_arrays(network, arrays)  # type: ignore[arg-type]
    for part in (
        "do not fit Network",
        "missing: extractor.fc1.bias",
        "unexpected: stray",
        "mis-shaped: head.weight (3, 64) for (10, 64)",
        "not numbers: extractor.fc2.weight",
        "not finite: extractor.fc2.bias",
    ):
        assert part in str(caught.value)
    assert all(np.array_equal(array, before[key]) for key, array in to_arrays(network).items())


def test_a_value_beyond_float32_is_not_finite() -> None:
    network = build("mlp", (8, 8, 1), 10, seed=1)
    with pytest.raises(InputError, match=r"not finite: head\.weight"):
        load_arrays(network, {**to_arrays(network), "head.weight": np.full((10, 64), 1e300)})


def test_a_long_list_of_faults_is_cut_short() -> None:
    with pytest.raises(InputError, match=r"missing: extractor.conv.weight, .* and \d+ more"):
        load_arrays(build("resnet20", (8, 8, 1), 2, seed=0), {})
