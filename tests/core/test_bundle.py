"""The bundle on disk: it comes back as it was, damage is named, and a failed save harms nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from btfl import Btfl, ClientBundle, Coherent, DiscretisedLikelihood, LinearHead, Summary
from btfl.core.bundle import KIND, VERSION
from btfl.errors import InputError, StorageError
from btfl.storage import load_record, save_record
from making import make_bundle, make_stream


def tensors_of(folder: Path) -> Path:
    (path,) = folder.glob("*.safetensors")
    return path


@pytest.mark.parametrize("bias", [True, False])
def test_it_comes_back_as_it_was(tmp_path: Path, bias: bool) -> None:
    bundle = make_bundle(bias=bias)
    statistics: dict[str, np.ndarray] = {"counts": np.arange(4), "empty": np.zeros((0, 3), np.float32)}
    bundle = ClientBundle(
        bundle.global_head,
        bundle.personal_head,
        bundle.local_likelihood,
        bundle.global_likelihood,
        bundle.local_entropy,
        bundle.global_entropy,
        statistics,
        {"client": 3},
    )
    bundle.save(tmp_path)
    again = ClientBundle.load(tmp_path)
    stream = make_stream(bundle)
    assert Btfl(again).predict(stream).tobytes() == Btfl(bundle).predict(stream).tobytes()
    assert again.metadata == {"client": 3}
    for key, value in statistics.items():
        assert again.statistics[key].dtype == value.dtype
        assert again.statistics[key].tolist() == value.tolist()
    assert (again.global_head.bias is not None) == bias


def test_saving_twice_gives_the_same_bytes_and_leaves_two_files(tmp_path: Path, bundle: ClientBundle) -> None:
    bundle.save(tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    bundle.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    make_bundle(seed=9).save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # the old tensors are gone


def test_every_kind_of_damage_has_its_own_error(tmp_path: Path, bundle: ClientBundle) -> None:
    with pytest.raises(StorageError, match=r"bundle\.json is missing"):
        ClientBundle.load(tmp_path / "nowhere")

    def damaged(name: str) -> tuple[Path, dict[str, object]]:
        folder = tmp_path / name
        bundle.save(folder)
        record = json.loads((folder / "bundle.json").read_text())
        del record["record_sha256"]  # as btfl 0.1.0 wrote it
        return folder, record

    folder, _ = damaged("truncated")
    tensors_of(folder).write_bytes(tensors_of(folder).read_bytes()[:-7])
    with pytest.raises(StorageError, match="damaged or truncated"):
        ClientBundle.load(folder)

    folder, _ = damaged("flipped")
    content = bytearray(tensors_of(folder).read_bytes())
    content[-3] ^= 1
    tensors_of(folder).write_bytes(bytes(content))
    with pytest.raises(StorageError, match="sha256"):
        ClientBundle.load(folder)

    folder, _ = damaged("gone")
    tensors_of(folder).unlink()
    with pytest.raises(StorageError, match="which is missing"):
        ClientBundle.load(folder)

    folder, _ = damaged("half json")
    (folder / "bundle.json").write_text((folder / "bundle.json").read_text()[:40])
    with pytest.raises(StorageError, match=r"bundle\.json is damaged"):
        ClientBundle.load(folder)

    folder, record = damaged("future")
    (folder / "bundle.json").write_text(json.dumps({**record, "version": 99}))
    with pytest.raises(StorageError, match="version 99; this btfl reads version 1"):
        ClientBundle.load(folder)

    folder, record = damaged("elsewhere")
    (folder / "bundle.json").write_text(json.dumps({**record, "tensors": "../../secret"}))
    with pytest.raises(StorageError, match="does not name its tensors"):
        ClientBundle.load(folder)

    folder, record = damaged("other kind")
    (folder / "bundle.json").write_text(json.dumps({**record, "kind": "recipe for soup"}))
    with pytest.raises(StorageError, match="is not a btfl client bundle"):
        ClientBundle.load(folder)

    folder, record = damaged("edited")
    (folder / "bundle.json").write_text((folder / "bundle.json").read_text().replace("0.4", "0.5"))
    with pytest.raises(StorageError, match="damaged or was edited"):
        ClientBundle.load(folder)

    folder, record = damaged("incomplete")
    (folder / "bundle.json").write_text(json.dumps({**record, "fields": {}}))
    with pytest.raises(StorageError, match="incomplete"):
        ClientBundle.load(folder)


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_failed_save_leaves_the_old_bundle_whole(
    tmp_path: Path, bundle: ClientBundle, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    bundle.save(tmp_path)
    real, calls = os.fsync, 0

    def fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise OSError("no space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="no space left"):
        make_bundle(seed=5).save(tmp_path)
    monkeypatch.undo()
    again = ClientBundle.load(tmp_path)
    assert again.global_head.weight.tolist() == bundle.global_head.weight.tolist()
    assert not list(tmp_path.glob(".*.tmp"))


def test_parts_that_do_not_fit_are_refused(bundle: ClientBundle) -> None:
    local = bundle.local_likelihood
    good = {
        "global_head": bundle.global_head,
        "personal_head": bundle.personal_head,
        "local_likelihood": local,
        "global_likelihood": bundle.global_likelihood,
        "local_entropy": 0.1,
        "global_entropy": 0.1,
    }
    narrow = DiscretisedLikelihood(np.array([0.5]), 3)
    for change, words in (
        ({"personal_head": np.zeros((3, 16))}, "4 classes in the global head, 3 in the personal"),
        ({"personal_head": np.zeros((4, 15))}, "personal head 15"),
        ({"local_likelihood": narrow}, "local likelihood 1"),
        ({"global_likelihood": narrow}, "global likelihood 1"),
        ({"local_entropy": -0.1}, "local_entropy"),
        ({"global_entropy": float("nan")}, "global_entropy"),
        ({"statistics": {"x": np.array([object()])}}, "Python objects"),
        ({"metadata": {"x": object()}}, "JSON"),
        ({"global_head": np.full((4, 16), np.nan)}, "NaN"),
        ({"global_head": (np.zeros((4, 16)), np.zeros(3))}, "bias of 3"),
    ):
        with pytest.raises(InputError, match=words):
            ClientBundle(**{**good, **change})  # type: ignore[arg-type]


def test_heads_can_be_given_as_matrices() -> None:
    assert LinearHead.of(np.ones((2, 3))).bias is None
    head = LinearHead.of((np.ones((2, 3)), np.array([1.0, 2.0])))
    assert head.logits(np.ones((1, 3))).tolist() == [[4.0, 5.0]]


def test_heads_too_large_to_compute_with_are_refused(tmp_path: Path, bundle: ClientBundle) -> None:
    huge = np.full((4, 16), 1e308)
    with pytest.raises(InputError, match=r"personal head holds weights up to 1e\+308; the limit is 1e\+50"):
        ClientBundle(bundle.global_head, huge, bundle.local_likelihood, bundle.global_likelihood)
    bundle.save(tmp_path)
    fields, arrays = load_record(tmp_path, "bundle", KIND, VERSION)
    save_record(tmp_path, "bundle", KIND, VERSION, fields, {**arrays, "global_head.weight": huge})
    with pytest.raises(StorageError, match=r"global head holds weights up to 1e\+308"):
        ClientBundle.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"local_likelihood": {"count": 10**200, "clients": 1}},
        {"local_likelihood": {"count": True, "clients": 1}},
        {"local_likelihood": {"count": 2.5, "clients": 1}},
        {"local_likelihood": {"count": "3", "clients": 1}},
        {"local_likelihood": [1, 2]},
        {"local_entropy": "much"},
        {"local_entropy": True},
        {"local_entropy": 10**299},
        {"metadata": "abc"},
        {"metadata": None},
    ],
)
def test_fields_of_other_types_are_one_sentence(
    tmp_path: Path, bundle: ClientBundle, change: dict[str, object]
) -> None:
    bundle.save(tmp_path)
    fields, arrays = load_record(tmp_path, "bundle", KIND, VERSION)
    save_record(tmp_path, "bundle", KIND, VERSION, {**fields, **change}, arrays)
    with pytest.raises(StorageError, match="does not fit together"):
        ClientBundle.load(tmp_path)


def test_a_head_that_does_not_fit_the_summaries_is_one_sentence() -> None:
    """As scikit-learn stores a layer, (dimensions, classes), for example."""
    labels = np.arange(12) % 3
    features = np.eye(3, 5)[labels]
    own, head = Summary.of(features, labels, classes=3), np.eye(3, 5)
    for features_given in (None, features):
        with pytest.raises(InputError, match=r"global head is \(5, 3\).*\(3, 5\): pass the transpose of its weight"):
            ClientBundle.of(head.T, head, own, own, features=features_given)
        with pytest.raises(InputError, match=r"personal head is \(3, 4\), but the summaries are for .* \(3, 5\)$"):
            ClientBundle.of(head, head[:, :4], own, own, features=features_given)


def test_a_method_is_built_from_a_bundle_not_from_its_folder(tmp_path: Path) -> None:
    make_bundle().save(tmp_path)
    for method in (Btfl, Coherent):
        with pytest.raises(InputError, match=r"built from a ClientBundle, which ClientBundle\.load.*not from a str"):
            method(str(tmp_path))  # type: ignore[arg-type]
