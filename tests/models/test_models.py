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
from btfl.models import MODELS, Network, build, load_arrays, to_arrays, torch_draws
from btfl.models.cct4 import EncoderLayer
from btfl.randomness import generator

CASES: list[tuple[str, tuple[int, int, int], dict[str, object], int]] = [
    ("cnn", (32, 32, 3), {}, 64),
    ("cnn", (16, 20, 1), {"bias": True}, 64),
    ("resnet20", (32, 32, 3), {}, 64),
    ("resnet20", (8, 12, 1), {"width": 4}, 256),
    ("cct4", (32, 32, 3), {}, 128),
    ("cct4", (9, 14, 1), {}, 128),
    ("mlp", (8, 8, 1), {}, 64),
    ("mlp", (5, 7, 3), {"hidden": 10}, 64),
]
every_model = pytest.mark.parametrize(("name", "shape", "options", "size"), CASES)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def images(shape: tuple[int, int, int], n: int = 16, scale: float = 1.0) -> torch.Tensor:
    """Images as the engines hand them over: (n, c, h, w) views of NHWC memory."""
    values = generator(0, "test images").standard_normal((n, *shape)) * scale
    return torch.from_numpy(values.astype(np.float32)).permute(0, 3, 1, 2)


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
    name: str, shape: tuple[int, int, int], options: dict[str, object], size: int
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
    name: str, shape: tuple[int, int, int], options: dict[str, object], size: int
) -> None:
    network = build(name, shape, 4, seed=1, **options).eval()
    batch = images(shape)
    torch.testing.assert_close(network(batch), network.head(network.features(batch)))


# --- features -------------------------------------------------------------------------------------


@every_model
def test_features_are_never_negative(
    name: str, shape: tuple[int, int, int], options: dict[str, object], size: int
) -> None:
    network = build(name, shape, 10, seed=2, **options)
    for training in (True, False):
        network.train(training)
        for scale in (0.0, 1e-6, 1.0, -1.0, 1e6):
            features = network.features(images(shape, scale=scale))
            assert bool(torch.isfinite(features).all())
            assert float(features.detach().min()) >= 0.0


@every_model
def test_both_memory_formats_see_the_same(
    name: str, shape: tuple[int, int, int], options: dict[str, object], size: int
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
    name: str, shape: tuple[int, int, int], options: dict[str, object], size: int
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
    name: str, shape: tuple[int, int, int], options: dict[str, object], size: int
) -> None:
    network = build(name, shape, 10, seed=5, **options).eval()
    before = torch.get_rng_state()
    first, second = network(images(shape)), network(images(shape))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_cct4_dropout_follows_the_seed_of_the_block() -> None:
    network = build("cct4", (16, 16, 3), 10, seed=0).train()
    batch = images((16, 16, 3))

    def run(seed: int) -> torch.Tensor:
        with torch_draws(seed, "train", 3, 1):
            return network(batch)  # type: ignore[no-any-return]

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_cct4_without_dropout_trains_without_drawing() -> None:
    network = build("cct4", (16, 16, 3), 10, seed=0, attention_dropout=0.0, stochastic_depth=0.0)
    batch = images((16, 16, 3))
    before = torch.get_rng_state()
    training = network.train()(batch)
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(training, network.eval()(batch))


def test_cct4_stochastic_depth_keeps_the_mean_of_a_branch() -> None:
    layer = EncoderLayer(dropout=0.0, skip=0.4).train()
    with torch_draws(0, "test"):
        branch = layer._sometimes(torch.ones(20_000, 1, 1))
    kept = branch[branch > 0]
    assert len(kept) / len(branch) == pytest.approx(0.6, abs=0.02)
    assert float(branch.mean()) == pytest.approx(1.0, abs=0.02)
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.6))


# --- seeds ----------------------------------------------------------------------------------------


@every_model
def test_the_seed_alone_decides_the_weights(
    name: str, shape: tuple[int, int, int], options: dict[str, object], size: int
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
    name: str, shape: tuple[int, int, int], options: dict[str, object], size: int
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
    return Network(nn.Sequential(nn.Flatten(), nn.Linear(h * w * c, 5)), 5, classes)

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
        ("wrong_size", r"shape \(1, 16\) for 1 images; feature_size=5 asks for \(1, 5\)"),
        ("wrong_input", r"fails on images of 4x4 with 1 channels"),
        ("squeezes", r"shape \(16,\) for 1 images"),
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


def test_a_network_made_by_hand_is_checked_at_its_first_use_only() -> None:
    network = Network(nn.Flatten(), feature_size=4, classes=2)
    with pytest.raises(InputError, match="negative feature"):
        network(-torch.ones(1, 1, 2, 2))
    network(torch.ones(1, 1, 2, 2))
    assert float(network.features(-torch.ones(1, 1, 2, 2)).min()) == -1.0  # later batches cost no check


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


# --- errors ---------------------------------------------------------------------------------------


def test_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model 'resnet'\. Did you mean resnet20"):
        build("resnet", (32, 32, 3), 10, seed=0)
    assert set(MODELS) == {"cnn", "resnet20", "cct4", "mlp"}


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("cnn", (15, 32, 3), {}, "cnn needs images of at least 16x16, not 15x32"),
        ("cnn", (3, 32, 32), {}, "height, width, channels"),
        ("resnet20", (7, 8, 3), {}, "at least 8x8"),
        ("cct4", (8, 7, 3), {}, "at least 8x8"),
        ("mlp", (8, 8), {}, "three whole numbers"),
        ("mlp", (8, 0, 1), {}, "three whole numbers"),
        ("mlp", (8, 8.5, 1), {}, "three whole numbers"),
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


def test_cct4_refuses_another_image_size_than_it_was_built_for() -> None:
    network = build("cct4", (32, 32, 3), 10, seed=0)
    with pytest.raises(InputError, match="built for images of 64 tokens"):
        network(torch.zeros(1, 3, 4, 4))


# --- weights as arrays ----------------------------------------------------------------------------


@every_model
def test_arrays_carry_the_whole_model(
    name: str, shape: tuple[int, int, int], options: dict[str, object], size: int
) -> None:
    source = build(name, shape, 10, seed=1, **options).eval()
    target = build(name, shape, 10, seed=2, **options).eval()
    target.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    strides = [parameter.stride() for parameter in target.parameters()]
    load_arrays(target, to_arrays(source))
    assert all(np.array_equal(array, to_arrays(target)[key]) for key, array in to_arrays(source).items())
    assert [parameter.stride() for parameter in target.parameters()] == strides
    torch.testing.assert_close(target(images(shape)), source(images(shape)), rtol=1e-4, atol=1e-5)


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


def test_the_names_are_listed_without_torch() -> None:
    code = "import sys; from btfl.models import MODELS; print(sorted(MODELS), 'torch' in sys.modules)"
    listed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert listed.strip() == f"{sorted(MODELS)} False"
