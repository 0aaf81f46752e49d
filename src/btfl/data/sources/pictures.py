"""Decoding picture files of any kind and size into one array of small square RGB images.

A picture is cut to its central square and resized to the asked size: shrunk by area averaging, enlarged
bicubically. Grey and palette pictures become RGB; transparent ones are drawn on white; of an animation the
first frame is taken.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from btfl.data.sources.tree import Parts, Tree
from btfl.errors import DataError, InputError
from btfl.pixels.types import Images

AT_ONCE = 512  # files held in memory while they are decoded
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
"""Those of ``tree.SUFFIXES``. No others are tried whatever a file is called: one in EPS would start Ghostscript."""
DEEP_MODES = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
DECODE_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


@dataclass
class Seen:
    """What kinds of pictures there were, for the notes."""

    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    grey: int = 0
    transparent: int = 0

    def notes(self, size: int) -> list[str]:
        """Return sentences on what was done to the pictures."""
        found = []
        if len(self.sizes) > 1:
            small, large = (f"{w}x{h}" for w, h in (min(self.sizes), max(self.sizes)))
            found.append(
                f"pictures of {len(self.sizes)} sizes (from {small} to {large}) were cut to their central square "
                f"and resized to {size}x{size}"
            )
        if self.grey:
            found.append(f"{self.grey:,} grey pictures were turned into RGB")
        if self.transparent:
            found.append(f"{self.transparent:,} pictures with transparency were drawn on white")
        return found


def decode_all(tree: Tree, files: Sequence[Parts], size: int, seen: Seen) -> Images:
    """Decode ``files`` of a tree, in that order, to uint8 (n, size, size, 3)."""
    if size < 1:
        raise InputError(f"image_size must be at least 1, not {size}")
    images = np.empty((len(files), size, size, 3), dtype=np.uint8)
    waiting: list[tuple[int, bytes]] = []
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as threads:

        def flush() -> None:
            decoded = threads.map(lambda item: decode(item[1], "/".join(files[item[0]]), size), waiting)
            for (i, _), (pixels, kind) in zip(waiting, decoded, strict=True):
                images[i] = pixels
                seen.sizes[kind.size] += 1
                seen.grey += kind.grey
                seen.transparent += kind.transparent
            waiting.clear()

        for item in tree.read(files):
            waiting.append(item)
            if len(waiting) == AT_ONCE:
                flush()
        flush()
    return images


@dataclass(frozen=True)
class Kind:
    """What a picture was before it was made small, square and RGB."""

    size: tuple[int, int]
    grey: bool
    transparent: bool


def decode(data: bytes, name: str, size: int) -> tuple[NDArray[np.uint8], Kind]:
    """Decode one picture; a broken one is refused by name."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.mode in DEEP_MODES:
                raise DataError(f"{name} has more than 8 bits a channel (mode {image.mode}); save it with 8")
            original = image.size
            image.draft("RGB", (2 * size, 2 * size))  # a large JPEG need not be decoded at full size
            transparent = image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info
            kind = Kind(original, image.mode in ("L", "1", "LA", "La"), transparent)
            return _small_square(_rgb(image, transparent), size), kind
    except DECODE_ERRORS as error:
        if isinstance(error, DataError):
            raise
        said = f"it is none of {', '.join(FORMATS)}" if isinstance(error, UnidentifiedImageError) else error
        raise DataError(f"{name} is broken or no image: {said}") from error


def _rgb(image: Image.Image, transparent: bool) -> Image.Image:
    if not transparent:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _small_square(image: Image.Image, size: int) -> NDArray[np.uint8]:
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    if (width, height) != (size, size):
        how = Image.Resampling.BOX if side >= size else Image.Resampling.BICUBIC
        image = image.resize((size, size), how, box=(left, top, left + side, top + side))
    return np.asarray(image, dtype=np.uint8)
