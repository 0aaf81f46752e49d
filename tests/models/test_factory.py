"""Facts every model must hold to: sizes, features >= 0, weights from the seed alone, both memory formats."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from btfl.errors import InputError, UnknownNameError
from btfl.models import MODELS, Network, build, to_arrays, torch_draws
from btfl.randomness import generator

CASES: list[tuple[str, tuple[int, ...], dict[str, object], int]] = [
    ("cnn", (32, 32, 3), {}, 64),
    ("cnn", (16, 20, 1), {"bias": True}, 64),
    ("resnet20", (32, 32, 3), {}, 64),
    ("resnet20", (8, 12, 1), {"width": 4}, 256),
    ("cct4", (32, 32, 3), {}, 128),
    ("cct4", (9, 14, 1), {}, 128),
    ("mlp", (8, 8, 1), {}, 64),
    ("mlp", (5, 7, 3), {"hidden": 10}, 64),
    ("mlp", (30, 2), {}, 64),
    ("mlp", (11,), {}, 64),
    ("cnn1d", (128, 6), {}, 64),
    ("cnn1d", (16, 1), {"width": 5}, 64),
    ("linear", (40,), {}, 40),
    ("linear", (1,), {"bias": False}, 1),
]
every_model = pytest.mark.parametrize(("name", "shape", "options", "size"), CASES)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def images(shape: tuple[int, ...], n: int = 16, scale: float = 1.0) -> torch.Tensor:
    """Samples as the engines hand them over: (n, c, h, w) views of NHWC memory, (n, c, t) of NTC memory, or (n, d)."""
    values = generator(0, "test images").standard_normal((n, *shape)) * scale
    return torch.from_numpy(values.astype(np.float32)).movedim(-1, 1)


def count(network: Network) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


# --- sizes ----------------------------------------------------------------------------------------


def test_parameter_counts_are_the_published_ones() -> None:
    assert count(build("cnn", (32, 32, 3), 10, seed=0)) == 156_640
    assert count(build("cnn", (32, 32, 3), 10, seed=0, bias=True)) == 156_640 + 32 + 64 + 64 + 10
    assert count(build("resnet20", (32, 32, 3), 10, seed=0)) == 272_464
    # The published 482,123 without the biases of the head (10) and of the sequence pooling (1).
    assert count(build("cct4", (32, 32, 3), 10, seed=0)) == 482_112


@every_model
def test_features_and_logits_have_the_promised_shape(
    name: str, shape: tuple[int, ...], options: dict[str, object], size: int
) -> None:
    network = build(name, shape, 7, seed=1, **options)
    batch = images(shape, n=3)
    assert network.feature_size == size
    assert network.features(batch).shape == (3, size)
    assert network(batch).shape == (3, 7)
    assert network(batch[:1]).shape == (1, 7)
    assert network(batch[:0]).shape == (0, 7)


@every_model
def test_logits_are_the_head_on_the_features(
    name: str, shape: tuple[int, ...], options: dict[str, object], size: int
) -> None:
    network = build(name, shape, 4, seed=1, **options).eval()
    batch = images(shape)
    torch.testing.assert_close(network(batch), network.head(network.features(batch)))


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("cnn", (100,), r"cnn is a model for images .* samples are vectors of shape \(100,\): use mlp or linear"),
        ("resnet20", (128, 6), r"resnet20 is a model for images .* are signals of shape \(128, 6\): use cnn1d or mlp"),
        ("cct4", (5,), "cct4 is a model for images"),
        ("cnn1d", (32, 32, 3), r"cnn1d is a model for signals \(time, channels\), .* use cnn, resnet20, cct4 or mlp"),
        ("linear", (32, 2), "linear is a model for vectors"),
        ("cnn1d", (15, 6), "at least 16 steps, not 15"),
        ("mlp", (0,), "whole numbers > 0"),
        ("mlp", (2, 2, 2, 2), r"must be \(height, width, channels\) or \(time, channels\) or \(d,\)"),
    ],
)
def test_a_model_for_other_samples_says_which_are_for_these(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(name, shape, 3, seed=0)


def test_the_head_alone_reads_vectors_as_they_are() -> None:
    network, vectors = build("linear", (6,), 3, seed=0), torch.randn(4, 6)
    assert torch.equal(network.features(vectors), vectors)
    assert sorted(to_arrays(network)) == ["head.bias", "head.weight"]


# --- features -------------------------------------------------------------------------------------


@every_model
def test_features_are_finite_and_never_negative_where_that_is_promised(
    name: str, shape: tuple[int, ...], options: dict[str, object], size: int
) -> None:
    network = build(name, shape, 10, seed=2, **options)
    for training in (True, False):
        network.train(training)
        for scale in (0.0, 1e-6, 1.0, -1.0, 1e6):
            features = network.features(images(shape, scale=scale))
            assert bool(torch.isfinite(features).all())
            assert not network.nonnegative or float(features.detach().min()) >= 0.0


@every_model
def test_both_memory_formats_see_the_same(
    name: str, shape: tuple[int, ...], options: dict[str, object], size: int
) -> None:
    plain = build(name, shape, 10, seed=3, **options).eval()
    last: Network = copy.deepcopy(plain).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batch = images(shape)
    expected = plain.features(batch.contiguous())
    for network in (plain, last):
        for given in (batch, batch.contiguous()):
            torch.testing.assert_close(network.features(given), expected, rtol=1e-4, atol=1e-5)


@every_model
def test_gradients_reach_every_parameter(
    name: str, shape: tuple[int, ...], options: dict[str, object], size: int
) -> None:
    network = build(name, shape, 10, seed=4, **options).train()
    with torch_draws(0, "test"):
        logits = network(images(shape))
    nn.functional.cross_entropy(logits, torch.arange(len(logits)) % 10).backward()  # type: ignore[no-untyped-call]
    for parameter_name, parameter in network.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert float(parameter.grad.abs().max()) > 0.0, parameter_name


@every_model
def test_evaluation_is_deterministic_and_draws_nothing(
    name: str, shape: tuple[int, ...], options: dict[str, object], size: int
) -> None:
    network = build(name, shape, 10, seed=5, **options).eval()
    before = torch.get_rng_state()
    first, second = network(images(shape)), network(images(shape))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


# --- seeds ----------------------------------------------------------------------------------------


@every_model
def test_the_seed_alone_decides_the_weights(
    name: str, shape: tuple[int, ...], options: dict[str, object], size: int
) -> None:
    first = to_arrays(build(name, shape, 10, seed=6, **options))
    torch.rand(3)  # the caller's own draws must not matter
    again = to_arrays(build(name, shape, 10, seed=6, **options))
    other = to_arrays(build(name, shape, 10, seed=7, **options))
    assert list(first) == list(again) == list(other)
    assert all(first[key].tobytes() == again[key].tobytes() for key in first)
    assert first["head.weight"].tobytes() != other["head.weight"].tobytes()
    assert sum(first[key].tobytes() != other[key].tobytes() for key in first if first[key].ndim > 1) == sum(
        first[key].ndim > 1 for key in first
    )


@every_model
def test_build_leaves_the_callers_generator_alone(
    name: str, shape: tuple[int, ...], options: dict[str, object], size: int
) -> None:
    before = torch.get_rng_state()
    build(name, shape, 10, seed=8, **options)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_generator_is_given_back_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(InputError):
        build("resnet20", (32, 32, 3), 10, seed=0, width=0)
    assert torch.equal(torch.get_rng_state(), before)


# --- a model of one's own -------------------------------------------------------------------------

OWN = """
import torch
from torch import nn
from btfl.models import Network

def small(image_shape, classes, units=5):
    h, w, c = image_shape
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(h * w * c, units), nn.ReLU())
    return Network(extractor, units, classes, bias=True)

class Sub(Network):
    def __init__(self, image_shape, classes):
        h, w, c = image_shape
        super().__init__(nn.Sequential(nn.Flatten(), nn.Linear(h * w * c, 6), nn.ReLU()), 6, classes)

def no_relu(image_shape, classes):
    h, w, c = image_shape
    return Network(nn.Sequential(nn.Flatten(), nn.Linear(h * w * c, 5)), 5, classes, nonnegative=True)

def wrong_size(image_shape, classes):
    return Network(nn.Sequential(nn.Flatten(), nn.ReLU()), 5, classes)

def wrong_input(image_shape, classes):
    return Network(nn.Sequential(nn.Conv2d(9, 4, 1), nn.ReLU()), 5, classes)

class Squeeze(nn.Module):
    def forward(self, x):
        return x.flatten(1).relu().squeeze()

def squeezes(image_shape, classes):
    h, w, c = image_shape
    return Network(Squeeze(), h * w * c, classes)

def bare(image_shape, classes):
    return nn.Linear(3, classes)

value = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own_models_for_test.py").write_text(OWN)
    (tmp_path / "own_broken_for_test.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_models_for_test"
    sys.modules.pop("own_models_for_test", None)


def test_own_model_by_name(own: str) -> None:
    network = build(f"{own}:small", (4, 4, 1), 3, seed=1, units=9)
    assert (network.feature_size, network.head.out_features) == (9, 3)
    assert network.head.bias is not None
    again = to_arrays(build(f"{own}:small", (4, 4, 1), 3, seed=1, units=9))
    assert all(np.array_equal(array, again[key]) for key, array in to_arrays(network).items())
    assert build(f"{own}:Sub", (4, 4, 1), 3, seed=1).feature_size == 6


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("no_relu", "negative feature .* ReLU"),
        ("wrong_size", r"shape \(1, 16\) for 1 samples; feature_size=5 asks for \(1, 5\)"),
        ("wrong_input", r"fails on images of 4x4x1, given as \(n, 1, 4, 4\)"),
        ("squeezes", r"shape \(16,\) for 1 samples"),
        ("bare", "returned a Linear; it must return a btfl.models.Network"),
        ("value", "not a callable"),
        ("absent", "has no 'absent'"),
        ("", "package.module:Name"),
    ],
)
def test_own_model_at_fault_is_told_why(own: str, factory: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(f"{own}:{factory}", (4, 4, 1), 3, seed=1)


def test_own_module_that_is_not_there_or_lacks_an_import(own: str) -> None:
    with pytest.raises(InputError, match="no module 'nowhere_at_all'"):
        build("nowhere_at_all.models:Factory", (4, 4, 1), 3, seed=1)
    with pytest.raises(ModuleNotFoundError, match="a_package_nobody_has"):
        build("own_broken_for_test:Factory", (4, 4, 1), 3, seed=1)


# --- errors ---------------------------------------------------------------------------------------


def test_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model 'resnet'\. Did you mean resnet20"):
        build("resnet", (32, 32, 3), 10, seed=0)
    assert set(MODELS) == {"cnn", "resnet20", "cct4", "mlp", "cnn1d", "linear"}


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("cnn", (15, 32, 3), {}, "cnn needs images of at least 16x16, not 15x32"),
        ("cnn", (3, 32, 32), {}, "height, width, channels"),
        ("resnet20", (7, 8, 3), {}, "at least 8x8"),
        ("cct4", (8, 7, 3), {}, "at least 8x8"),
        ("mlp", (8, 0, 1), {}, "whole numbers > 0"),
        ("mlp", (8, 8.5, 1), {}, "whole numbers > 0"),
        ("cnn1d", (128, 6), {"width": 0}, "width must be"),
        ("mlp", (8, 8, 1), {"hidden": 0}, "hidden must be"),
        ("cnn", (32, 32, 3), {"widht": 2}, "'widht'.*It takes: bias"),
        ("resnet20", (32, 32, 3), {"width": 1.5}, "width must be a whole number"),
        ("cct4", (32, 32, 3), {"attention_dropout": 1.0}, "attention_dropout is a probability"),
        ("cct4", (32, 32, 3), {"stochastic_depth": -0.1}, "stochastic_depth is a probability"),
    ],
)
def test_what_cannot_be_built_says_why(
    name: str, shape: tuple[int, ...], options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build(name, shape, 10, seed=0, **options)


def test_too_few_classes_or_features() -> None:
    with pytest.raises(InputError, match="at least 2 classes"):
        build("mlp", (8, 8, 1), 1, seed=0)
    with pytest.raises(InputError, match="feature_size"):
        Network(nn.Flatten(), 0, 2)


def test_the_names_are_listed_without_torch() -> None:
    code = "import sys; from btfl.models import MODELS; print(sorted(MODELS), 'torch' in sys.modules)"
    listed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert listed.strip() == f"{sorted(MODELS)} False"
