"""A user's own npz: what loads, and what is refused with a sentence that names file and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from btfl.data.catalogue import load_source
from btfl.errors import BtflError, DataError, InputError

RNG = np.random.default_rng(0)
TINY = Path(__file__).resolve().parents[4] / "shared" / "data" / "tiny-imagenet-32-64c.npz"


def pictures(count: int, *shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return RNG.integers(0, 256, (count, *(shape or (8, 8, 3))), dtype=np.uint8)


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **arrays)
    return path


def test_images_labels_and_class_names_come_back_as_they_went_in(tmp_path: Path) -> None:
    x, y = pictures(6), np.array([0, 1, 2, 0, 1, 2])
    path = saved(tmp_path, x=x, y=y, classes=np.array(["cat", "dog", "owl"]), domain=np.array(list("aabbab")))
    source = load_source("arrays", root=path)
    np.testing.assert_array_equal(source.pool.values, x)
    np.testing.assert_array_equal(source.pool.labels, y)
    assert source.name == "mine"
    assert source.classes == ("cat", "dog", "owl")
    assert source.domains is not None
    assert [source.domain_names[d] for d in source.domains] == list("aabbab")
    assert any("corrupted throughout" in note for note in source.notes)


def test_grey_images_without_a_channel_axis_get_one(tmp_path: Path) -> None:
    source = load_source("arrays", root=saved(tmp_path, x=pictures(4, 8, 8), y=np.array([0, 1, 0, 1])))
    assert source.sample_shape == (8, 8, 1)
    assert source.classes == ("0", "1")


def test_train_and_validation_are_one_pool_and_the_only_other_pair_is_the_shift(tmp_path: Path) -> None:
    y = np.arange(4) % 2
    path = saved(
        tmp_path, x_train=pictures(4), y_train=y, x_val=pictures(2), y_val=y[:2], x_sketch=pictures(3), y_sketch=y[:3]
    )
    source = load_source("arrays", root=path)
    assert len(source.pool) == 6
    assert source.shift_name == "sketch"
    assert source.shifted is not None
    assert len(source.shifted) == 3
    assert load_source("arrays", root=path, shift="none").shifted is None


def test_a_test_part_is_not_taken_for_another_domain_unless_named(tmp_path: Path) -> None:
    y = np.arange(4) % 2
    path = saved(tmp_path, x_train=pictures(4), y_train=y, x_test=pictures(4), y_test=y)
    source = load_source("arrays", root=path)
    assert source.shifted is None
    assert any("x_test" in note for note in source.notes)
    assert load_source("arrays", root=path, shift="test").shift_name == "test"


def test_of_several_other_domains_one_must_be_chosen(tmp_path: Path) -> None:
    y = np.zeros(2, int)
    path = saved(tmp_path, x=pictures(2), y=y, x_ink=pictures(2), y_ink=y, x_oil=pictures(2), y_oil=y)
    with pytest.raises(InputError, match="choose shift=ink or oil"):
        load_source("arrays", root=path)
    assert load_source("arrays", root=path, shift="oil").shift_name == "oil"
    with pytest.raises(InputError, match="shift can be ink, oil, none or the path"):
        load_source("arrays", root=path, shift="chalk")


def test_another_file_can_be_the_shift_and_its_labels_are_matched_by_class_name(tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    np.savez(other, x=pictures(2), y=np.array([0, 1]), classes=np.array(["dog", "cat"]))
    path = saved(tmp_path, x=pictures(2), y=np.array([0, 1]), classes=np.array(["cat", "dog"]))
    source = load_source("arrays", root=path, shift=other)
    assert source.shifted is not None
    assert source.shifted.labels.tolist() == [1, 0]


def test_classes_without_an_image_are_said(tmp_path: Path) -> None:
    path = saved(tmp_path, x=pictures(2), y=np.array([0, 2]), classes=np.array(["a", "b", "c"]))
    assert any("no sample in the pool: b" in note for note in load_source("arrays", root=path).notes)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": pictures(2)}, "mine.npz has no array 'y'; it has x"),
        ({"y": np.array([0])}, "mine.npz has no array 'x'"),
        ({"x": pictures(2), "y": np.array([0])}, "'y' holds 1 labels for the 2 images of 'x'"),
        ({"x": pictures(2) / 255.0, "y": np.array([0, 1])}, r"'x' is float64; images must be uint8.*\* 255"),
        ({"x": pictures(2, 3, 8, 8), "y": np.array([0, 1])}, r"channels first: x.transpose\(0, 2, 3, 1\)"),
        ({"x": pictures(2, 8, 8, 4), "y": np.array([0, 1])}, r"'x' has shape \(2, 8, 8, 4\)"),
        (
            {"x": pictures(2), "y": np.array([0.0, 1.0])},
            r"'y' must hold one whole number \(or string\) for",
        ),
        ({"x": pictures(2), "y": np.array([0, -1])}, r"'y' holds the label -1 \(sample 1\)"),
        (
            {"x": pictures(2), "y": np.array([0, 7]), "classes": np.array(["a", "b"])},
            r"'y' holds the label 7 \(sample 1\), but there are 2 classes, 0 to 1",
        ),
        (
            {"x": pictures(2), "y": np.array([0, 1]), "x_shift": pictures(1), "y_shift": np.array([5])},
            "'y_shift' holds the label 5",
        ),
        (
            {"x": pictures(2), "y": np.array([0, 1]), "x_shift": pictures(1, 4, 4, 3), "y_shift": np.array([1])},
            "both must be of one size",
        ),
        ({"x": pictures(2), "y": np.array([0, 1]), "x_shift": pictures(1)}, "'x_shift' but no 'y_shift'"),
        ({"x": pictures(2), "y": np.array([0, 1]), "domain": np.array([0])}, "'domain' must hold one"),
        ({"x": pictures(2), "y": np.array([0, 1], dtype=object)}, "'y' is an object array, that is a pickle"),
        ({"x": pictures(0), "y": np.zeros(0, int)}, "'x' holds no image"),
    ],
)
def test_what_cannot_be_used_is_refused_by_file_and_key(tmp_path: Path, arrays: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        load_source("arrays", root=saved(tmp_path, **arrays))


def test_a_file_that_is_no_npz_or_is_damaged_is_refused_by_name(tmp_path: Path) -> None:
    text = tmp_path / "notes.npz"
    text.write_text("not an npz")
    with pytest.raises(DataError, match=r"notes\.npz is not an npz file"):
        load_source("arrays", root=text)
    single = tmp_path / "one.npy"
    np.save(single, pictures(2))
    with pytest.raises(DataError, match=r"one\.npy holds a single array"):
        load_source("arrays", root=single)
    with pytest.raises(DataError, match="there is no file"):
        load_source("arrays", root=tmp_path / "absent.npz")
    with pytest.raises(BtflError, match="needs the path of an npz"):
        load_source("arrays")
    whole = saved(tmp_path, x=pictures(50), y=np.arange(50) % 5)
    data = bytearray(whole.read_bytes())
    data[5000] ^= 1
    whole.write_bytes(data)
    with pytest.raises(DataError, match=r"mine\.npz: 'x' is damaged"):
        load_source("arrays", root=whole)


@pytest.mark.skipif(not TINY.is_file(), reason="tiny-imagenet-32-64c.npz is not at hand")
def test_tiny_imagenet_with_sketches_loads_as_it_is() -> None:
    source = load_source("arrays", root=TINY)
    assert len(source.classes) == 64
    assert len(source.pool) == 64 * 350
    assert source.shift_name == "sketch"
    assert source.shifted is not None
    assert len(np.unique(source.shifted.labels)) == 32


@pytest.mark.parametrize("label", [1_000_000, 10**9, 2**63 - 1])
def test_a_label_far_beyond_the_data_is_refused_at_once(tmp_path: Path, label: int) -> None:
    with pytest.raises(DataError, match=r"holds the label .*labels may go up to 999|no class's"):
        load_source("arrays", root=saved(tmp_path, x=pictures(4), y=np.array([0, 1, label, 1])))
    assert len(load_source("arrays", root=saved(tmp_path, x=pictures(4), y=np.array([0, 1, 999, 1]))).classes) == 1000


def test_an_encrypted_npz_is_one_sentence(tmp_path: Path) -> None:
    path = saved(tmp_path, x=pictures(4), y=np.arange(4))
    content = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(mark)
        while start >= 0:
            content[start + flags] |= 1  # encrypted
            start = content.find(mark, start + 4)
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"mine\.npz: 'x' cannot be opened: .*password"):
        load_source("arrays", root=path)


def test_signals_and_vectors_of_any_number_load_as_float32(tmp_path: Path) -> None:
    y = np.arange(4) % 2
    for x, shape in ((RNG.normal(size=(4, 9, 3)), (9, 3)), (np.arange(20, dtype=np.int16).reshape(4, 5), (5,))):
        source = load_source("arrays", root=saved(tmp_path, x=x, y=y))
        assert source.sample_shape == shape
        assert source.pool.values.dtype == np.float32
        np.testing.assert_array_equal(source.pool.values, x.astype(np.float32))
    assert any("B and D are left out" in note for note in source.notes)  # of vectors
    shifted = load_source("arrays", root=saved(tmp_path, x=x, y=y, x_shift=x[:2] + 1, y_shift=y[:2]))
    assert shifted.shifted is not None
    assert shifted.kind == "vectors"


@pytest.mark.parametrize("clients", [np.array([7, 3, 7, 5]), np.array(["eve", "bob", "eve", "dan"])])
def test_the_client_column_names_owners(tmp_path: Path, clients: Any) -> None:
    source = load_source("arrays", root=saved(tmp_path, x=pictures(4), y=np.arange(4) % 2, client=clients))
    assert source.owners is not None
    assert source.owner_names == tuple(map(str, sorted(set(clients.tolist()))))
    assert [source.owner_names[owner] for owner in source.owners] == [str(name) for name in clients]
    assert "3 clients" in repr(source)


def test_strings_as_labels_become_classes(tmp_path: Path) -> None:
    y = np.array(["run", "sit", "run", "lie"])
    source = load_source("arrays", root=saved(tmp_path, x=pictures(4), y=y, x_shift=pictures(2), y_shift=y[1:3]))
    assert source.classes == ("lie", "run", "sit")
    assert source.pool.labels.tolist() == [1, 2, 1, 0]
    assert source.shifted is not None
    assert source.shifted.labels.tolist() == [2, 1]
    named = load_source("arrays", root=saved(tmp_path, x=pictures(4), y=y, classes=np.array(["sit", "run", "lie"])))
    assert named.pool.labels.tolist() == [1, 0, 1, 2]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"client": np.array([0])}, "'client' must hold one whole number or string for each of the 2 images"),
        ({"client": np.array([0.5, 1.0])}, "'client' must hold one whole number or string"),
        ({"client": np.array(["a", "b"], dtype=object)}, "'client' is an object array, that is a pickle"),
        ({"x": np.array([np.zeros((2, 2)), np.zeros((3, 2))], dtype=object)}, "object array.*samples of one size"),
        ({"x": np.array([[np.nan, 1.0], [1.0, 2.0]])}, "NaN or infinite values in 1 of 2 vectors, first in number 0"),
        ({"x": np.full((2, 3, 1), np.inf)}, "NaN or infinite values in 2 of 2 signals"),
        ({"x": np.array([[2**40 + 1], [1]])}, "mine.npz: 'x': .*cannot hold 1099511627777 .sample 0. exactly"),
        ({"x": np.array(["a", "b"])}, r"'x' is <U1 of shape \(2,\); samples are uint8 images"),
        ({"x": np.zeros((2, 4), complex)}, "'x' is complex128"),
        ({"x": np.zeros((0, 4))}, "'x' holds no sample"),
        ({"x": np.zeros((2, 0))}, "hold nothing"),
        ({"y": np.array(["a", "b"]), "classes": np.array(["b", "c"])}, "'y' holds the labels a, which are none of"),
    ],
)
def test_what_is_wrong_with_samples_and_clients_is_one_sentence(
    tmp_path: Path, arrays: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        load_source("arrays", root=saved(tmp_path, **{"x": pictures(2), "y": np.array([0, 1]), **arrays}))
