"""Handwritten 8x8 digits that come inside scikit-learn, and the same digits printed: no download at all.

The handwritten ones are the UCI optical digits: 32x32 bitmaps reduced to the count of ink pixels in each 4x4
block. The other domain is made the same way from type instead of handwriting, so that only the hand differs:
digits in the fonts that ship inside matplotlib, a little turned, slanted, stretched, thickened and moved.
Both are deterministic; another version of matplotlib's fonts or of FreeType may move a few pixels of the
printed ones, and a stream manifest would notice, being tied to the fingerprint of the images.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from btfl.data.source import NO_SHIFT_NOTE, Samples, Source
from btfl.errors import DataError, InputError
from btfl.pixels.types import Images
from btfl.randomness import generator

SHIFTS = ("printed", "none")
FONTS = (
    "DejaVuSans.ttf",
    "DejaVuSans-Bold.ttf",
    "DejaVuSans-Oblique.ttf",
    "DejaVuSansMono.ttf",
    "DejaVuSansMono-Bold.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSerif-Bold.ttf",
    "DejaVuSerif-Italic.ttf",
    "STIXGeneral.ttf",
    "STIXGeneralBol.ttf",
    "STIXGeneralItalic.ttf",
    "STIXGeneralBolIta.ttf",
    "cmr10.ttf",
    "cmb10.ttf",
    "cmss10.ttf",
    "cmti10.ttf",
    "cmtt10.ttf",
)
PER_CLASS = 102  # six of every font: about the 1,000 images that twenty clients' shifted streams can use
SEED = 8
BITMAP, BLOCK = 32, 4
DRAWN = 96  # the type size a glyph is drawn at before it is reduced
PAGE = 144  # what it is drawn on: as small as holds every glyph of the list, however it is turned
MOST_INK = BLOCK * BLOCK


def load(*, root: Path | None = None, shift: str | Path | None = None) -> Source:
    """Load the digits; ``shift`` is "printed" (the default) or "none". ``root`` must be None: there is no file."""
    if root is not None:  # typed for data of the user's own, whose dataset was not: the digits would be another answer
        raise InputError(
            f"digits are read from no file; for data of your own in {root} name the dataset, too: arrays, table, folder"
        )
    chosen = "printed" if shift is None else str(shift).lower()
    if chosen not in SHIFTS:
        raise InputError(f"digits has no shift '{shift}'; it knows {' and '.join(SHIFTS)}")
    with_print = chosen == "printed"
    return Source(
        name="digits",
        classes=tuple(str(digit) for digit in range(10)),
        pool=handwritten(),
        shifted=printed() if with_print else None,
        shift_name="printed digits" if with_print else None,
        notes=() if with_print else (NO_SHIFT_NOTE,),
    )


def handwritten() -> Samples:
    """Return the 1,797 handwritten digits as grey 8x8 images."""
    table = _table_of_digits()
    return Samples(_grey(table[:, :-1].reshape(-1, 8, 8)), table[:, -1].astype(np.int64))


def _table_of_digits() -> NDArray[np.float64]:
    """Return 64 counts and the label of each digit; from the file itself: importing its reader takes a second."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError("the digits come inside scikit-learn, which is not installed; run pip install 'btfl[train]'")
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if path.exists():
        return np.loadtxt(path, delimiter=",")
    from sklearn.datasets import load_digits  # a release that keeps it elsewhere

    counts, labels = load_digits(return_X_y=True)
    return np.column_stack([counts, labels])


def printed(per_class: int = PER_CLASS, seed: int = SEED) -> Samples:
    """Draw the printed digits: every font in turn, jittered by the generator of ``seed``."""
    labels = np.repeat(np.arange(10, dtype=np.int64), per_class)
    return Samples(_grey(_printed_counts(per_class, seed)), labels)


@cache
def _printed_counts(per_class: int, seed: int) -> NDArray[np.int64]:
    """Return the ink of each block, (images, 8, 8); drawn once a process, since it takes half a second."""
    rng = generator(seed, "printed digits")
    fonts = [_font(name) for name in FONTS]
    digits = np.repeat(np.arange(10), per_class)
    return np.stack([_block_counts(_bitmap(str(digit), fonts[i % len(fonts)], rng)) for i, digit in enumerate(digits)])


def _font(name: str) -> ImageFont.FreeTypeFont:
    import matplotlib

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name
    try:
        return ImageFont.truetype(str(path), DRAWN, layout_engine=ImageFont.Layout.BASIC)
    except OSError as error:
        raise DataError(
            f"the printed digits need matplotlib's font {name}, which cannot be read ({error}); "
            f"reinstall matplotlib, or use shift='none'"
        ) from error


def _bitmap(digit: str, font: ImageFont.FreeTypeFont, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw one digit as UCI's forms were scanned: it fills the height of a 32x32 bitmap of ink and no ink."""
    turn, slant = math.radians(rng.normal(0.0, 5.0)), rng.normal(0.0, 0.08)
    height = int(rng.integers(BITMAP - 3, BITMAP + 1))
    stretch = rng.uniform(0.9, 1.2)
    stroke = int(rng.integers(0, 4))
    shift_x, shift_y = rng.uniform(-1.5, 1.5), rng.uniform(0.0, 1.0)

    page = Image.new("L", (PAGE, PAGE), 0)
    centre = PAGE / 2
    ImageDraw.Draw(page).text(
        (centre, centre), digit, fill=255, font=font, anchor="mm", stroke_width=stroke, stroke_fill=255
    )
    cos, sin = math.cos(turn), math.sin(turn)
    across, down = (cos, sin + slant), (-sin, cos)  # output pixel -> drawn pixel: a turn after a slant
    page = page.transform(
        page.size,
        Image.Transform.AFFINE,
        (
            *across, centre - centre * sum(across),
            *down, centre - centre * sum(down),
        ),
        Image.Resampling.BILINEAR,
    )  # fmt: skip
    box = page.getbbox()
    assert box is not None, "a font of the list has no such digit"
    natural = (box[2] - box[0]) / (box[3] - box[1])
    width = min(BITMAP, max(BLOCK, round(height * natural * stretch)))
    glyph = np.asarray(page.crop(box).resize((width, height), Image.Resampling.BOX)) >= 128
    bitmap = np.zeros((BITMAP, BITMAP), dtype=bool)
    left = min(BITMAP - width, max(0, round((BITMAP - width) / 2 + shift_x)))
    top = round((BITMAP - height) * shift_y)
    bitmap[top : top + height, left : left + width] = glyph
    return bitmap


def _block_counts(bitmap: NDArray[np.bool_]) -> NDArray[np.int64]:
    blocks = bitmap.reshape(BITMAP // BLOCK, BLOCK, BITMAP // BLOCK, BLOCK)
    counts: NDArray[np.int64] = blocks.sum(axis=(1, 3), dtype=np.int64)
    return counts


def _grey(counts: NDArray[np.number]) -> Images:
    """Spread the ink counts 0..16 over 0..255, with a channel axis."""
    return np.rint(np.asarray(counts, dtype=float) * (255 / MOST_INK)).astype(np.uint8)[..., None]
