"""Draw every corruption at every severity, for looking at: docs/images/corruptions.png.

Run as ``python benchmarks/contact_sheet.py``, or with ``--images FILE.npz`` (keys x and y) for other pictures.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from btfl.pixels.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from btfl.pixels.types import Images
from btfl.randomness import generator

SHEET = Path(__file__).parents[1] / "docs" / "images" / "corruptions.png"
WHICH = (8, 18, 43)  # a ship, a bird and a horse of CIFAR-10's training part
SEED = 10  # gives the three images three different panes of frost
TILE, GAP, BLOCK_GAP = 64, 2, 10
LABELS, HEAD = 138, 22  # pixels for the names at the left and the severities above
INK, PAPER = "black", "white"


def load_images(path: Path | None) -> Images:
    """Return the images of an npz file, or CIFAR-10's."""
    if path is not None:
        with np.load(path) as file:
            return np.asarray(file["x"], np.uint8)
    from btfl.data.catalogue import load_source

    return load_source("cifar10", shift="none").pool.values


def draw(images: Images) -> Image.Image:
    """Lay out one row for each corruption; for each image the original and the five severities."""
    columns = 1 + len(SEVERITIES)
    block = columns * (TILE + GAP) + BLOCK_GAP
    size = LABELS + len(images) * block - BLOCK_GAP, HEAD + len(CORRUPTIONS) * (TILE + GAP)
    sheet = Image.new("RGB", size, PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for row, name in enumerate(CORRUPTIONS):
        y = HEAD + row * (TILE + GAP)
        pen.text((LABELS - 6, y + TILE // 2), name.replace("_", " "), INK, font, anchor="rm")
        # Every severity gets the same draws, so that a row shows one corruption grow.
        versions = [images, *(corrupt(images, name, level, generator(SEED, "sheet", name)) for level in SEVERITIES)]
        for column, version in enumerate(versions):
            for number, pixels in enumerate(version):
                x = LABELS + number * block + column * (TILE + GAP)
                tile = Image.fromarray(pixels.squeeze()).resize((TILE, TILE), Image.Resampling.NEAREST)
                sheet.paste(tile, (x, y))
                if row == 0:
                    title = "original" if column == 0 else str(column)
                    pen.text((x + TILE // 2, HEAD // 2), title, INK, font, anchor="mm")
    return sheet


def main() -> None:
    """Read, draw and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, help="npz with x (uint8, n x height x width x channels)")
    parser.add_argument("--which", type=int, nargs="+", default=list(WHICH), help="which of them to show")
    parser.add_argument("--out", type=Path, default=SHEET)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw(load_images(options.images)[options.which]).save(options.out, optimize=True)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
