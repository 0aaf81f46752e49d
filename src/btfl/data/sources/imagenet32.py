"""ImageNet at 32x32 (Chrabaszcz et al., 2017; the npz form), with ImageNet-R shrunk as the other domain.

A folder holds ``train_data_batch_1.npz`` to ``train_data_batch_10.npz`` (``data``: rows of 3,072
channel-first pixels; ``labels``: 1 to 1,000) and, if wanted, ``val_data.npz``. Which label is which WordNet
id is in ``map_clsloc.txt`` (lines like ``n02119789 1 kit_fox``), which comes with ImageNet's development
kit. ImageNet-R is its own folder ``nXXXXXXXX/*.jpg`` or the tar of it. Only classes that both have are kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from btfl.data.source import NO_SHIFT_NOTE, Labels, Samples, Source
from btfl.data.sources.npz import Npz
from btfl.data.sources.pictures import Seen, decode_all
from btfl.data.sources.tree import Parts, open_tree
from btfl.errors import DataError, InputError
from btfl.pixels.types import Images
from btfl.randomness import generator

MAP = "map_clsloc.txt"
SIDE = 32
BATCHES = 10
MOST_CLASSES = 1_000
BESIDE = ("imagenet-r", "imagenet-r.tar", "ImageNet-R")

Wnids = dict[int, tuple[str, str]]  # label -> WordNet id and name


def load(
    *,
    root: Path | None = None,
    shift: str | Path | None = None,
    part: str = "train",
    classes: int | None = None,
    per_class: int | None = None,
) -> Source:
    """Load ImageNet at 32x32; what is left out is in the notes.

    Parameters
    ----------
    root : the folder of its npz files
    shift : the path of ImageNet-R, or "none"; None: ``imagenet-r`` or ``imagenet-r.tar`` in ``root``
    part : "train" or "val" (50 images a class)
    classes : keep the first so many shared classes, in ImageNet's order
    per_class : keep at most so many images of each class, of both domains
    """
    if root is None:
        raise InputError("imagenet32 needs the folder of its npz files as root")
    if any(limit is not None and limit < 1 for limit in (classes, per_class)):
        raise InputError(f"classes and per_class must be at least 1, not {classes} and {per_class}")
    notes: list[str] = []
    files = _batches(root, part, notes)
    batches = [(path, _labels(path)) for path in files]
    present = set(np.unique(np.concatenate([labels for _, labels in batches])).tolist())
    wnids = {label: names for label, names in _read_map(root).items() if label in present}
    if not wnids:
        raise DataError(f"{MAP} names none of the labels in {files[0].name}")
    place = _imagenet_r(root, shift)
    if place is None:
        kept = sorted(wnids)[:classes]
        shifted = None
        notes.append(NO_SHIFT_NOTE if shift is not None else f"ImageNet-R is not in {root.name}; {NO_SHIFT_NOTE}")
    else:
        kept, shifted = _read_r(place, wnids, classes, per_class, notes)
    if classes is not None:
        notes.append(f"only {len(kept)} classes are used, the first in ImageNet's order")
    if per_class is not None:
        notes.append(f"at most {per_class:,} images of each class are used")
    return Source(
        name="imagenet32",
        classes=_names(wnids, kept),
        pool=_read_batches(batches, kept, per_class),
        shifted=shifted,
        shift_name=None if shifted is None else "ImageNet-R",
        notes=tuple(notes),
    )


def _batches(root: Path, part: str, notes: list[str]) -> list[Path]:
    if part not in ("train", "val"):
        raise InputError(f"part must be train or val, not '{part}'")
    if not root.is_dir():
        raise DataError(f"there is no folder {root}")
    if part == "val":
        files = [root / "val_data.npz"]
    else:
        files = [root / f"train_data_batch_{i}.npz" for i in range(1, BATCHES + 1)]
    there = [path for path in files if path.is_file()]
    if not there:
        raise DataError(f"{root} holds no {files[0].name}: it must hold ImageNet at 32x32 in its npz form")
    if len(there) < len(files):
        missing = ", ".join(path.name for path in files if path not in there)
        notes.append(f"only {len(there)} of {len(files)} batches are there; missing: {missing}")
    return there


def _read_map(root: Path) -> Wnids:
    path = root / MAP
    if not path.is_file():
        raise DataError(
            f"{root} holds no {MAP}, the WordNet id of each label (lines like 'n02119789 1 kit_fox') "
            f"that comes with ImageNet's development kit"
        )
    wnids: Wnids = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) < 2 or not words[1].isdigit():
            raise DataError(f"{MAP}, line {number}: '{line}' is not like 'n02119789 1 kit_fox'")
        wnids[int(words[1])] = (words[0], " ".join(words[2:]).replace("_", " ") or words[0])
    if not wnids:
        raise DataError(f"{MAP} is empty")
    return wnids


def _names(wnids: Wnids, kept: list[int]) -> tuple[str, ...]:
    """Names of the classes; ImageNet has two cranes and two maillots, which are told apart by their ids."""
    counted = Counter(wnids[label][1] for label in kept)
    return tuple(name if counted[name] == 1 else f"{name} ({wnid})" for wnid, name in (wnids[label] for label in kept))


def _imagenet_r(root: Path, shift: str | Path | None) -> Path | None:
    if shift is None:
        return next((root / name for name in BESIDE if (root / name).exists()), None)
    if str(shift).lower() == "none":
        return None
    if str(shift).lower() == "imagenet-r":
        place = _imagenet_r(root, None)
        if place is None:
            raise DataError(f"ImageNet-R is not in {root}: unpack it there as imagenet-r, or name its path as shift")
        return place
    if not Path(shift).exists():
        raise InputError(f"imagenet32 has no shift '{shift}', and there is no such path; name ImageNet-R's, or none")
    return Path(shift)


def _read_r(
    place: Path, wnids: Wnids, classes: int | None, per_class: int | None, notes: list[str]
) -> tuple[list[int], Samples]:
    """Read ImageNet-R: the labels it shares with ``wnids``, and its images of them."""
    label_of = {wnid: label for label, (wnid, _) in wnids.items()}
    with open_tree(place) as tree:
        by_label: dict[int, list[Parts]] = defaultdict(list)
        strange: Counter[str] = Counter()
        for path in sorted(tree.listing.images):
            wnid = path[-2] if len(path) > 1 else ""
            if wnid in label_of:
                by_label[label_of[wnid]].append(path)
            else:
                strange[wnid] += 1
        if not by_label:
            raise DataError(f"{place.name} shares no class with {MAP}: its folders must be named like n02119789")
        if strange:
            notes.append(f"{strange.total():,} images of {place.name} are of no class in {MAP} and were left out")
        kept = sorted(by_label)[:classes]
        files = [path for label in kept for path in _sample(by_label[label], per_class, wnids[label][0])]
        place_of = {wnids[label][0]: i for i, label in enumerate(kept)}
        labels = np.array([place_of[path[-2]] for path in files], dtype=np.int64)
        seen = Seen()
        images = decode_all(tree, files, SIDE, seen)
    notes.extend(seen.notes(SIDE))
    return kept, Samples(images, labels)


def _sample(files: list[Parts], limit: int | None, wnid: str) -> list[Parts]:
    """Take some files of a class; at random, for by name they are sorted by style (art, cartoon, ...)."""
    if limit is None or len(files) <= limit:
        return files
    chosen = generator(0, "imagenet-r", wnid).choice(len(files), limit, replace=False)
    return [files[i] for i in sorted(chosen.tolist())]


def _read_batches(batches: list[tuple[Path, Labels]], kept: list[int], per_class: int | None) -> Samples:
    """Read images of the kept classes; rows are chosen by label first, so that memory holds only what is kept."""
    index = {label: i for i, label in enumerate(kept)}
    taken: Counter[int] = Counter()
    chosen: list[NDArray[np.int64]] = []
    for _, theirs in batches:
        rows = []
        for row, label in enumerate(theirs.tolist()):
            if label in index and (per_class is None or taken[label] < per_class):
                taken[label] += 1
                rows.append(row)
        chosen.append(np.array(rows, dtype=np.int64))
    images: Images = np.empty((taken.total(), SIDE, SIDE, 3), dtype=np.uint8)
    start = 0
    for (path, theirs), wanted in zip(batches, chosen, strict=True):
        pixels = _pixels(path, len(theirs))[wanted]
        images[start : start + len(wanted)] = pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        start += len(wanted)
    labels = np.concatenate([theirs[wanted] for (_, theirs), wanted in zip(batches, chosen, strict=True)])
    return Samples(images, np.array([index[label] for label in labels.tolist()], dtype=np.int64))


def _labels(path: Path) -> Labels:
    with Npz(path) as npz:
        labels = npz.read("labels")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(f"{path.name}: 'labels' must be whole numbers, not {labels.dtype} of {labels.shape}")
    if len(labels) and (labels.min() < 1 or labels.max() > MOST_CLASSES):
        raise DataError(
            f"{path.name}: 'labels' run from {labels.min()} to {labels.max()}, not within 1 to {MOST_CLASSES:,}"
        )
    return labels.astype(np.int64)


def _pixels(path: Path, count: int) -> NDArray[np.uint8]:
    with Npz(path) as npz:
        data = npz.read("data")
    if data.dtype != np.uint8 or data.shape != (count, 3 * SIDE * SIDE):
        raise DataError(
            f"{path.name}: 'data' must be uint8 of shape ({count}, {3 * SIDE * SIDE}), one row a label, "
            f"not {data.dtype} of shape {data.shape}"
        )
    return data
