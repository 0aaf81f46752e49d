"""Any tree ``domain/class/image``, as a folder or a tar: OfficeHome, PACS, Office-31, or the user's own.

One domain is left out of the pool and is the shift. With ``level="client"`` the first level is the client that an image
belongs to, ``client/class/image``, and none is left out. A root in a folder of its own
(``pacs/photo/dog/1.jpg``) and classes one level down (``amazon/images/mug/1.jpg``, as in Office-31) are
recognised. Pictures are cut to their central square and resized to ``image_size``
(see :mod:`btfl.data.sources.pictures`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from btfl.data.source import NO_SHIFT_NOTE, Samples, Source
from btfl.data.sources.pictures import Seen, decode_all
from btfl.data.sources.tree import Listing, Parts, open_tree
from btfl.errors import DataError, InputError, UnknownNameError, listed

OFFICEHOME = ("art", "clipart", "product", "real world")
BETWEEN = "images"  # Office-31's own level between domain and class


@dataclass(frozen=True)
class Picture:
    """One image file and where it belongs."""

    domain: str
    label: str
    path: Parts


def load(
    *, root: Path | None = None, shift: str | Path | None = None, image_size: int = 32, level: str = "domain"
) -> Source:
    """Load a tree of image files.

    Parameters
    ----------
    root : a folder or tar, domain/class/image
    shift : the domain to leave out of the pool (default: the last by name), or "none"
    image_size : side of the square that pictures are resized to, in pixels
    level : what the folders of the first level are: "domain" or "client"
    """
    if level == "client":
        return _load_clients(root, shift, image_size)
    if level != "domain":
        raise UnknownNameError("level of a tree", str(level), ("domain", "client"))
    return _load(root, shift, image_size, None)


def load_officehome(*, root: Path | None = None, shift: str | Path | None = None, image_size: int = 32) -> Source:
    """Load OfficeHome: as ``load``, and its four domains must be there."""
    return _load(root, shift, image_size, OFFICEHOME)


def _load(root: Path | None, shift: str | Path | None, image_size: int, expected: tuple[str, ...] | None) -> Source:
    kind = "folder" if expected is None else "officehome"
    if root is None:
        raise InputError(f"{kind} needs the path of a folder or tar file, domain/class/image, as root")
    with open_tree(root) as tree:
        notes: list[str] = []
        pictures = _pictures(tree.listing, root.name, notes)
        domains = sorted({picture.domain for picture in pictures})
        if expected is not None:
            _check_domains(root.name, domains, expected)
        left_out = _left_out(root.name, domains, shift)
        pool = [picture for picture in pictures if picture.domain != left_out]
        classes = sorted({picture.label for picture in pool})
        other = _other_domain([p for p in pictures if p.domain == left_out], classes, left_out, notes)
        if left_out is not None and not other:
            raise DataError(f"{root.name}: the domain '{left_out}' shares no class with the others")
        _uneven(pool + other, classes, domains, notes)
        seen = Seen()
        images = decode_all(tree, [picture.path for picture in pool + other], image_size, seen)
    labels = np.array([classes.index(picture.label) for picture in pool + other], dtype=np.int64)
    kept = [domain for domain in domains if domain != left_out]
    if left_out is None:
        notes.append(NO_SHIFT_NOTE)
    return Source(
        name=root.stem if expected is None else kind,
        classes=tuple(classes),
        pool=Samples(images[: len(pool)], labels[: len(pool)]),
        shifted=Samples(images[len(pool) :], labels[len(pool) :]) if other else None,
        shift_name=left_out,
        domains=np.array([kept.index(picture.domain) for picture in pool], dtype=np.int64),
        domain_names=tuple(kept),
        named_after_files=frozenset({"name"} if expected is None else ()),
        notes=(*notes, *seen.notes(image_size)),
    )


def _load_clients(root: Path | None, shift: str | Path | None, image_size: int) -> Source:
    if root is None:
        raise InputError("folder needs the path of a folder or tar file, client/class/image, as root")
    if shift is not None and str(shift).lower() != "none":
        raise InputError("a tree client/class/image has no domains, so shift can only be none")
    with open_tree(root) as tree:
        notes: list[str] = []
        pictures = _pictures(tree.listing, root.name, notes, "client")
        seen = Seen()
        images = decode_all(tree, [picture.path for picture in pictures], image_size, seen)
    classes, clients = sorted({picture.label for picture in pictures}), sorted({picture.domain for picture in pictures})
    of_class, of_client = ({name: place for place, name in enumerate(names)} for names in (classes, clients))
    return Source(
        name=root.stem,
        classes=tuple(classes),
        pool=Samples(images, np.array([of_class[picture.label] for picture in pictures], dtype=np.int64)),
        owners=np.array([of_client[picture.domain] for picture in pictures], dtype=np.int64),
        owner_names=tuple(clients),
        named_after_files=frozenset({"name"}),
        notes=(*notes, NO_SHIFT_NOTE, *seen.notes(image_size)),
    )


def _pictures(listing: Listing, name: str, notes: list[str], first: str = "domain") -> list[Picture]:
    """Find domain or client, class and file in the paths; sorted, so that a folder and its tar have the same order."""
    found: dict[Parts, list[Picture]] = defaultdict(list)
    outside: list[Parts] = []
    for path in sorted(listing.images):
        levels = path[:-3] + path[-2:] if len(path) > 3 and path[-3] == BETWEEN else path
        if len(levels) < 3:
            outside.append(path)
        else:
            found[levels[:-3]].append(Picture(levels[-3], levels[-2], path))
    if not found:
        example = f": {'/'.join(outside[0])} is not in one" if outside else ""
        raise DataError(f"{name} holds no image in a tree {first}/class/image{example}")
    if len(found) > 1:
        one, other = ("/".join(pictures[0].path) for pictures in list(found.values())[:2])
        raise DataError(f"{name} is no tree {first}/class/image: {one} and {other} are not in one")
    (prefix, pictures), *_ = found.items()
    if outside:
        notes.append(f"{len(outside)} images outside of {first}/class/ were left out: {listed(map('/'.join, outside))}")
    if listing.passed_over:
        names = listed(map("/".join, sorted(listing.passed_over)))
        notes.append(f"{len(listing.passed_over)} files that are no images were skipped: {names}")
    holding = {picture.path[:depth] for picture in pictures for depth in range(1, len(picture.path))}
    empty = sorted(folder for folder in listing.folders - holding if len(folder) <= len(prefix) + 2)
    if empty:
        notes.append(f"{len(empty)} folders without an image were left out: {listed(map('/'.join, empty))}")
    return pictures


def _same(name: str) -> str:
    return name.lower().replace("_", " ").replace("-", " ")


def _check_domains(name: str, domains: list[str], expected: tuple[str, ...]) -> None:
    missing = [domain.title() for domain in expected if domain not in {_same(found) for found in domains}]
    extra = [domain for domain in domains if _same(domain) not in expected]
    if missing or extra:
        lacks = f" lacks {', '.join(missing)}" if missing else ""
        has = f"{' and' if missing else ''} has {', '.join(extra)}" if extra else ""
        raise DataError(
            f"{name} is not OfficeHome: it{lacks}{has}; the dataset 'folder' takes trees with other domains"
        )


def _left_out(name: str, domains: list[str], shift: str | Path | None) -> str | None:
    """Name the domain that becomes the shift, as the tree spells it."""
    chosen = domains[-1]
    if shift is not None:
        same = [domain for domain in domains if _same(domain) == _same(str(shift))]
        if not same and str(shift).lower() == "none":
            return None
        if not same:
            raise UnknownNameError(f"domain of {name}", str(shift), [*domains, "none"])
        chosen = same[0]
    if len(domains) == 1:
        raise DataError(f"{name} has one domain only, '{chosen}': none can be left out; use shift='none'")
    return chosen


def _other_domain(pictures: list[Picture], classes: list[str], domain: str | None, notes: list[str]) -> list[Picture]:
    """Leave out of the other domain what no client can have learnt."""
    unknown = Counter(picture.label for picture in pictures if picture.label not in set(classes))
    if unknown:
        notes.append(
            f"{len(unknown)} classes are in '{domain}' only and were left out, {unknown.total():,} images: "
            f"{listed(sorted(unknown))}"
        )
    return [picture for picture in pictures if picture.label not in unknown]


def _uneven(pictures: list[Picture], classes: list[str], domains: list[str], notes: list[str]) -> None:
    """Note which domains lack which classes."""
    held: dict[str, set[str]] = defaultdict(set)
    for picture in pictures:
        held[picture.domain].add(picture.label)
    for domain in domains:
        missing = [label for label in classes if label not in held[domain]]
        if missing:
            notes.append(f"'{domain}' has no image of {len(missing)} of the {len(classes)} classes: {listed(missing)}")
    single = [label for label in classes if sum(label in labels for labels in held.values()) == 1]
    if single and len(domains) > 1:
        notes.append(f"{len(single)} classes are in one domain only: {listed(single)}")
