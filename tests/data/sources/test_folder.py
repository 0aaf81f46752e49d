"""Trees of picture files: OfficeHome, PACS, Office-31, ImageNet-R, and everything that real folders have in them."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from btfl.data.catalogue import load_source
from btfl.data.source import Source
from btfl.data.sources.pictures import decode
from btfl.errors import DataError, InputError, UnknownNameError

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
OFFICEHOME = ("Art", "Clipart", "Product", "Real World")
RED, GREEN, BLUE = (200, 30, 40), (20, 180, 60), (10, 40, 220)


def picture(path: Path, colour: object = RED, size: tuple[int, int] = (40, 30), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)  # type: ignore[arg-type]


def tree(root: Path, domains: tuple[str, ...], classes: tuple[str, ...] = ("Bed", "Mug"), each: int = 2) -> Path:
    for d, domain in enumerate(domains):
        for c, name in enumerate(classes):
            for i in range(each):
                picture(root / domain / name / f"{i:05}.png", (10 * d, 100 * c, 5 * i))
    return root


def tarred(root: Path, path: Path, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        tar.add(root, arcname=root.name)
    return path


def said(source: Source, words: str) -> bool:
    return any(words in note for note in source.notes)


@pytest.mark.parametrize("spelling", ["Real World", "Real_World", "RealWorld"])
def test_officehome_leaves_one_of_its_four_domains_out(tmp_path: Path, spelling: str) -> None:
    root = tree(tmp_path / "OfficeHomeDataset_10072016", (*OFFICEHOME[:3], spelling))
    (root / "ImageInfo.csv").write_text("x")
    if spelling == "RealWorld":
        with pytest.raises(DataError, match="is not OfficeHome: it lacks Real World and has RealWorld"):
            load_source("officehome", root=root)
        return
    source = load_source("officehome", root=root, shift="art")
    assert source.name == "officehome"
    assert source.shift_name == "Art"
    assert source.domain_names == ("Clipart", "Product", spelling)
    assert source.classes == ("Bed", "Mug")
    assert len(source.pool) == 12
    assert source.domains is not None
    np.testing.assert_array_equal(np.bincount(source.domains), [4, 4, 4])
    assert load_source("officehome", root=tmp_path).shift_name == spelling  # last by name, seen through the folder
    assert said(source, "1 files that are no images were skipped: ImageInfo.csv")


def test_a_folder_and_its_tar_give_the_same_images_in_the_same_order(tmp_path: Path) -> None:
    root = tree(tmp_path / "set", ("ink", "oil", "pen"), each=3)
    source = load_source("folder", root=root, shift="oil")
    for mode, name in (("w", "set.tar"), ("w:gz", "set.tar.gz")):
        packed = load_source("folder", root=tarred(root, tmp_path / name, mode), shift="oil")
        assert packed.pool.fingerprint == source.pool.fingerprint
        assert packed.shifted is not None
        assert source.shifted is not None
        assert packed.shifted.fingerprint == source.shifted.fingerprint


def test_office31s_level_between_domain_and_class_is_seen_through(tmp_path: Path) -> None:
    for domain in ("amazon", "webcam"):
        picture(tmp_path / "o" / domain / "images" / "mug" / "1.png")
    source = load_source("folder", root=tmp_path / "o")
    assert source.domain_names == ("amazon",)
    assert source.classes == ("mug",)


def test_pictures_of_every_mode_and_size_become_small_squares(tmp_path: Path) -> None:
    root = tmp_path / "set"
    picture(root / "a" / "k" / "1rgb.png", RED)
    picture(root / "a" / "k" / "2grey.png", 77, mode="L")
    picture(root / "a" / "k" / "3clear.png", (0, 0, 0, 0), mode="RGBA")
    picture(root / "a" / "k" / "4small.bmp", GREEN, size=(5, 9))
    picture(root / "a" / "k" / "5large.JPG", BLUE, size=(900, 300))
    picture(root / "a" / "k" / "6palette.gif", 3, mode="P")
    picture(root / "b" / "k" / "1cmyk.jpg", (0, 0, 0, 0), mode="CMYK")
    source = load_source("folder", root=root, image_size=16)
    assert source.sample_shape == (16, 16, 3)
    colours = source.pool.values[:, 8, 8].astype(int)
    np.testing.assert_allclose(colours[:4], [RED, (77, 77, 77), (255, 255, 255), GREEN], atol=1)
    np.testing.assert_allclose(colours[4], BLUE, atol=6)
    assert source.shifted is not None
    np.testing.assert_array_equal(source.shifted.values[0], 255)
    assert said(source, "central square")
    assert said(source, "1 grey pictures")
    assert said(source, "1 pictures with transparency were drawn on white")


def test_the_central_square_is_kept(tmp_path: Path) -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = RED
    for domain in "ab":
        (tmp_path / "s" / domain / "k").mkdir(parents=True)
        Image.fromarray(wide).save(tmp_path / "s" / domain / "k" / "1.png")
    source = load_source("folder", root=tmp_path / "s", image_size=10)
    np.testing.assert_array_equal(source.pool.values[0], np.broadcast_to(np.array(RED, np.uint8), (10, 10, 3)))


def test_a_broken_picture_is_refused_by_name(tmp_path: Path) -> None:
    root = tree(tmp_path / "set", ("ink", "oil"))
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(buffer, "JPEG")
    broken = root / "ink" / "Bed" / "half.jpg"
    broken.write_bytes(buffer.getvalue()[:1500])
    with pytest.raises(DataError, match=r"ink/Bed/half\.jpg is broken or no image"):
        load_source("folder", root=root)
    broken.write_bytes(b"")
    with pytest.raises(DataError, match=r"ink/Bed/half\.jpg is broken"):
        load_source("folder", root=root)
    broken.unlink()
    picture(root / "oil" / "Mug" / "deep.png", 40_000, mode="I;16")
    with pytest.raises(DataError, match=r"oil/Mug/deep\.png has more than 8 bits"):
        load_source("folder", root=root)


def test_litter_is_passed_over_and_said(tmp_path: Path) -> None:
    root = tree(tmp_path / "set", ("ink", "oil"))
    for name in ("Thumbs.db", ".DS_Store", "._00000.png"):
        (root / "ink" / "Bed" / name).write_bytes(b"litter")
    picture(root / "cover.png")
    (root / "oil" / "Sofa").mkdir()
    (root / "pastel").mkdir()
    source = load_source("folder", root=root)
    assert len(source.pool) == 4
    assert said(source, "3 files that are no images were skipped")
    assert said(source, "1 images outside of domain/class/ were left out: cover.png")
    assert said(source, "2 folders without an image were left out: oil/Sofa, pastel")


def test_classes_that_not_every_domain_has_are_said_and_those_of_the_shift_alone_left_out(tmp_path: Path) -> None:
    root = tree(tmp_path / "set", ("ink", "oil", "pen"))
    picture(root / "pen" / "Zebra" / "1.png")
    picture(root / "ink" / "Ark" / "1.png")
    source = load_source("folder", root=root)
    assert source.classes == ("Ark", "Bed", "Mug")
    assert source.shifted is not None
    assert len(source.shifted) == 4
    assert said(source, "1 classes are in 'pen' only and were left out, 1 images: Zebra")
    assert said(source, "'oil' has no image of 1 of the 3 classes: Ark")
    assert said(source, "1 classes are in one domain only: Ark")


def test_a_shift_is_a_domain_of_the_tree_or_none(tmp_path: Path) -> None:
    root = tree(tmp_path / "set", ("ink", "oil"))
    with pytest.raises(UnknownNameError, match="Did you mean oil"):
        load_source("folder", root=root, shift="oils")
    source = load_source("folder", root=root, shift="none")
    assert source.shifted is None
    assert source.domain_names == ("ink", "oil")
    assert said(source, "corrupted throughout")
    with pytest.raises(DataError, match="one domain only, 'ink'"):
        load_source("folder", root=tree(tmp_path / "one", ("ink",)))


def test_what_is_no_such_tree_is_refused(tmp_path: Path) -> None:
    picture(tmp_path / "flat" / "dog" / "1.png")
    with pytest.raises(DataError, match=r"no image in a tree domain/class/image: dog/1\.png"):
        load_source("folder", root=tmp_path / "flat")
    deep = tree(tmp_path / "deep", ("ink",))
    picture(deep / "oil" / "train" / "Bed" / "1.png")
    with pytest.raises(DataError, match="are not in one"):
        load_source("folder", root=deep)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no image"):
        load_source("folder", root=tmp_path / "empty")
    with pytest.raises(DataError, match="there is no folder or tar file"):
        load_source("folder", root=tmp_path / "absent")
    with pytest.raises(InputError, match="needs the path"):
        load_source("folder")
    (tmp_path / "text.tar").write_text("no tar")
    with pytest.raises(DataError, match=r"text\.tar is neither a folder nor a whole tar") as refused:
        load_source("folder", root=tmp_path / "text.tar")
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="image_size must be a whole number, not 'large'"):
        load_source("folder", root=deep, image_size="large")


def test_a_tar_cannot_reach_outside_itself(tmp_path: Path) -> None:
    root = tree(tmp_path / "set", ("ink", "oil"))
    secret = tmp_path / "secret.png"
    picture(secret)
    path = tarred(root, tmp_path / "links.tar")
    with tarfile.open(path, "a") as tar:
        link = tarfile.TarInfo("set/ink/Bed/link.png")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        tar.addfile(link)
    source = load_source("folder", root=path)
    assert len(source.pool) == 4
    assert said(source, "skipped: set/ink/Bed/link.png")
    with tarfile.open(path, "a") as tar:
        tar.add(secret, arcname="../set/ink/Bed/up.png")
    with pytest.raises(DataError, match="points outside of it"):
        load_source("folder", root=path)


def test_a_truncated_tar_is_refused(tmp_path: Path) -> None:
    path = tarred(tree(tmp_path / "set", ("ink", "oil")), tmp_path / "set.tar.gz", "w:gz")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"set\.tar\.gz is (damaged|truncated)"):
        load_source("folder", root=path)


@pytest.mark.parametrize(
    ("name", "images", "classes", "domains"), [("pacs64.tar", 9_991, 7, 4), ("office31-64.tar", 4_110, 31, 3)]
)
def test_pacs_and_office31_load_whole(name: str, images: int, classes: int, domains: int) -> None:
    if not (SHARED / name).is_file():
        pytest.skip(f"{name} is not at hand")
    source = load_source("folder", root=SHARED / name)
    assert source.shifted is not None
    assert len(source.pool) + len(source.shifted) == images
    assert len(source.classes) == classes
    assert len(source.domain_names) + 1 == domains


WNIDS = ("n02119789", "n02100735", "n02110185", "n02096294")


def imagenet32(root: Path, map_file: bool = True) -> Path:
    """Make the npz distribution in small: two batches, four classes, each pixel telling its channel and label."""
    root.mkdir()
    labels = np.array([1, 2, 3, 4] * 3)
    data = np.zeros((12, 3, 32, 32), np.uint8)
    data += labels[:, None, None, None].astype(np.uint8)
    data += (100 * np.arange(2.55, -0.1, -1)).astype(np.uint8)[:3, None, None] // 2
    for i in (1, 2):
        np.savez(root / f"train_data_batch_{i}.npz", data=data.reshape(12, -1), labels=labels, mean=data.mean(0))
    if map_file:
        names = ("kit_fox", "crane", "crane", "terrier")
        (root / "map_clsloc.txt").write_text(
            "".join(f"{wnid} {i} {name}\n" for i, (wnid, name) in enumerate(zip(WNIDS, names, strict=True), 1))
        )
    return root


def imagenet_r(root: Path) -> Path:
    for i, wnid in enumerate((*WNIDS[:3], "n09999999")):
        for style in ("art_0", "cartoon_1", "sketch_2"):
            picture(root / wnid / f"{style}.jpg", (60 * i, 60 * i, 60 * i), size=(50, 70))
    (root / "README.txt").write_text("ImageNet-R")
    return root


def test_imagenet32_and_imagenet_r_keep_the_classes_they_share(tmp_path: Path) -> None:
    root = imagenet32(tmp_path / "in32")
    imagenet_r(root / "imagenet-r")
    source = load_source("imagenet32", root=root)
    assert source.classes == ("kit fox", "crane (n02100735)", "crane (n02110185)")
    assert len(source.pool) == 18
    assert source.shift_name == "ImageNet-R"
    assert source.shifted is not None
    np.testing.assert_array_equal(np.bincount(source.shifted.labels), [3, 3, 3])
    grey = source.shifted.values.mean(axis=(1, 2, 3))
    np.testing.assert_allclose(grey, 60 * source.shifted.labels, atol=4)
    channels = source.pool.values[:, 5, 7].astype(int) - (source.pool.labels + 1)[:, None]
    assert (channels == channels[0]).all()
    assert channels[0, 0] > channels[0, 1] > channels[0, 2]  # red first, as in the file
    assert said(source, "3 images of imagenet-r are of no class")
    assert said(source, "only 2 of 10 batches")


def test_imagenet32_shrinks_honestly(tmp_path: Path) -> None:
    root = imagenet32(tmp_path / "in32")
    r = tarred(imagenet_r(tmp_path / "imagenet-r"), tmp_path / "r.tar")
    source = load_source("imagenet32", root=root, shift=r, classes=2, per_class=2)
    np.testing.assert_array_equal(np.bincount(source.pool.labels), [2, 2])
    assert source.shifted is not None
    np.testing.assert_array_equal(np.bincount(source.shifted.labels), [2, 2])
    assert said(source, "only 2 classes are used")
    assert said(source, "at most 2 images")


def test_imagenet32_says_what_is_missing(tmp_path: Path) -> None:
    root = imagenet32(tmp_path / "in32", map_file=False)
    with pytest.raises(DataError, match=r"holds no map_clsloc\.txt"):
        load_source("imagenet32", root=root)
    with pytest.raises(DataError, match=r"holds no val_data\.npz"):
        load_source("imagenet32", root=root, part="val")
    whole = imagenet32(tmp_path / "whole")
    assert len(load_source("imagenet32", root=whole).classes) == 4
    assert said(load_source("imagenet32", root=whole), "ImageNet-R is not in whole")
    np.savez(whole / "train_data_batch_3.npz", data=np.zeros((1, 3072), np.uint8), labels=np.array([1001]))
    with pytest.raises(DataError, match=r"train_data_batch_3\.npz: 'labels' run from 1001"):
        load_source("imagenet32", root=whole)


def test_only_the_formats_that_are_expected_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import EpsImagePlugin

    started: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given, **named: started.append(given))
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(DataError, match=r"cat\.png is broken or no image"):
        decode(eps, "cat.png", 8)
    assert started == []


@pytest.mark.skipif(os.name == "nt", reason="needs pipes in the file system")
def test_a_pipe_among_the_pictures_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "a" / "cat").mkdir(parents=True)
    os.mkfifo(tmp_path / "a" / "cat" / "1.png")
    with pytest.raises(DataError, match="not a regular file"):
        load_source("folder", root=tmp_path, shift="none")


def test_the_first_level_can_be_clients(tmp_path: Path) -> None:
    root = tree(tmp_path / "set", ("ann", "bob", "cid"), each=3)
    source = load_source("folder", root=root, level="client")
    assert source.shifted is None
    assert source.domains is None
    assert source.owner_names == ("ann", "bob", "cid")
    assert source.owners is not None
    assert np.bincount(source.owners).tolist() == [len(source.pool) // 3] * 3
    packed = load_source("folder", root=tarred(root, tmp_path / "set.tar", "w"), level="client")
    assert packed.pool.fingerprint == source.pool.fingerprint
    assert packed.owners_fingerprint == source.owners_fingerprint
    with pytest.raises(InputError, match="client/class/image has no domains, so shift can only be none"):
        load_source("folder", root=root, level="client", shift="ann")
    with pytest.raises(UnknownNameError, match=r"unknown level of a tree 'clients'\. Did you mean client"):
        load_source("folder", root=root, level="clients")
