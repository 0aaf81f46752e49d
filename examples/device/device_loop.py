"""A device at work: images come one by one, each is predicted, and a restart changes nothing.

The split form of ``btfl export --extractor-only``: the extractor runs in onnxruntime, the decision in btfl's core.
Needed: numpy, scipy, safetensors, onnxruntime and btfl; pillow for a folder of picture files. No torch.

    python device_loop.py --extractor extractor.onnx --bundle extractor-bundle --images folder-or-file.npz

Every answer is appended to ``answers.jsonl``, and the state that belongs to it replaces ``state.json`` in one step.
Switch the device off at any moment: it goes on with the first image it has no state for. The flag is up while the
stream looks external: while the mean of e, the weight of the global head, over about the last ``--window`` samples is
above ``--raise-above``; it comes down below ``--lower-below``, so that it does not flutter.

A bundle that takes along how the client's own samples look (``btfl export --looks``) also makes it alarm at images
unlike all of them, such as those of a camera that has failed: from the first one on, and until twenty in a row look as
usual. What is strange is answered all the same, and marked.

To renew it, put the extractor and the bundle of a later round in place of the old ones, and start it again: it goes on
with its memory. An extractor of another round than the bundle, or a bundle of another training, is refused.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from btfl import Btfl, ClientBundle, Coherent, Monitor
from btfl.core.provenance import KEY, Provenance, check_fits, check_renewal
from btfl.errors import BtflError
from btfl.monitor import Looks
from btfl.storage import read_json, write_json

Image = NDArray[np.uint8]
METHODS = {"btfl": Btfl, "coherent": Coherent}
PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}


@dataclass
class Watch:
    """The running mean of e, and whether the flag is up."""

    mean: float = 0.5
    up: bool = False

    def see(self, e: float, window: int, raise_above: float, lower_below: float) -> bool:
        """Take in a sample's e; say whether the flag has changed."""
        self.mean += (e - self.mean) / window
        before = self.up
        self.up = self.mean > (lower_below if before else raise_above)
        return self.up != before


class Device:
    """The extractor, the decision and the watch, with one state that is saved as a whole."""

    def __init__(self, extractor: Path, bundle: Path, folder: Path, method: str, false_alarms: float) -> None:
        if not extractor.is_file():
            raise SystemExit(f"there is no extractor {extractor}: `btfl export --extractor-only` writes one")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(extractor), options, providers=["CPUExecutionProvider"])
        self.shape = tuple(self.session.get_inputs()[0].shape[1:])
        own = ClientBundle.load(bundle)
        self.provenance = Provenance.of_bundle(own)
        check_fits(self.provenance, Provenance.of_model(self.session.get_modelmeta().custom_metadata_map))
        self.adapter, self.watch = METHODS[method](own), Watch()
        self.looks = Looks.carried(own)
        self.monitor = None if self.looks is None else Monitor(self.looks.levels(), rate=false_alarms, warm_up=0)
        self.state, self.answers = folder / "state.json", folder / "answers.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        if self.state.exists():
            saved = read_json(self.state)
            before = saved.get(KEY)
            check_renewal(None if before is None else Provenance.from_dict(before), self.provenance)
            self.adapter.restore(saved["adapter"])
            self.watch = Watch(**saved["watch"])
            if self.monitor is not None and saved.get("monitor") is not None:
                self.monitor.restore(saved["monitor"])
        self._drop_unfinished()

    @property
    def seen(self) -> int:
        """How many images have been answered, in all lives together."""
        return int(self.adapter.state["seen"])

    def see(self, image: Image, arguments: argparse.Namespace) -> dict[str, Any]:
        """Predict one image, and make sure of it."""
        if image.dtype != np.uint8 or image.shape != self.shape:
            raise SystemExit(
                f"image {self.seen} is {image.dtype} {image.shape}; the extractor takes uint8 {self.shape}"
            )
        (features,) = self.session.run(None, {"images": image[None]})
        probabilities = self.adapter.predict(features)[0]
        e = float(self.adapter.trace.e[0])
        changed = self.watch.see(e, arguments.window, arguments.raise_above, arguments.lower_below)
        answer = {
            "sample": self.seen - 1,
            "class": int(probabilities.argmax()),
            "probability": float(probabilities.max()),
            "e": e,
            "mean_e": self.watch.mean,
            "external": self.watch.up,
        }
        changed_looks = False
        if self.looks is not None and self.monitor is not None:
            looks = self.looks.strangeness(image[None])
            changed_looks = bool(self.monitor.watch({"looks": looks}))
            answer |= {"looks": float(looks[0]), "strange": bool(self.monitor.alarmed)}
        with self.answers.open("a") as file:
            file.write(json.dumps(answer) + "\n")
            file.flush()
            os.fsync(file.fileno())
        # last: if the device dies before this, the sample is answered again, from the same state
        come_from = None if self.provenance is None else self.provenance.as_dict()
        watched = None if self.monitor is None else self.monitor.state
        saved = {"adapter": self.adapter.state, "watch": asdict(self.watch), "monitor": watched, KEY: come_from}
        write_json(self.state, saved)
        return {**answer, "changed": changed, "changed_looks": changed_looks}

    def _drop_unfinished(self) -> None:
        """Drop the answer that a sudden end left without its state: that sample is about to be answered again."""
        if self.answers.exists():
            lines = self.answers.read_text().splitlines(keepends=True)
            if len(lines) > self.seen:
                self.answers.write_text("".join(lines[: self.seen]))


def images_of(path: Path) -> Iterator[Image]:
    """Return the images of an npz (its first array, or ``x``), or of a folder's picture files in order of name."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            yield from arrays["x" if "x" in arrays else arrays.files[0]]
        return
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in PICTURES)
    if not files:
        raise SystemExit(f"there are no pictures in {path}: known endings are {', '.join(sorted(PICTURES))}")
    try:
        from PIL import Image as Picture
    except ModuleNotFoundError:
        raise SystemExit("a folder of pictures needs pillow: pip install pillow") from None
    for file in files:
        with Picture.open(file) as picture:
            pixels = np.asarray(picture)
        yield pixels[..., None] if pixels.ndim == 2 else pixels


def arguments_of(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--extractor", type=Path, required=True, help="what `btfl export --extractor-only` wrote")
    parser.add_argument("--bundle", type=Path, required=True, help="the folder it wrote beside it")
    parser.add_argument("--images", type=Path, required=True, help="a folder of pictures, or an npz as a camera")
    parser.add_argument("--folder", type=Path, default=Path("device"), help="where answers and state are kept")
    parser.add_argument("--method", choices=METHODS, default="btfl", help="the paper's method, or our coherent one")
    parser.add_argument("--window", type=int, default=20, help="samples that the mean of e looks back on")
    parser.add_argument("--raise-above", type=float, default=0.7, help="mean e that raises the flag")
    parser.add_argument("--lower-below", type=float, default=0.6, help="mean e that takes it down again")
    parser.add_argument(
        "--false-alarms", type=float, default=0.1, help="promised for 1,000 own images, 0.03 to 10; only with looks"
    )
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two images, as of a camera")
    return parser.parse_args(words)


def main() -> None:
    """Answer every image that has no answer yet."""
    arguments = arguments_of()
    device = Device(arguments.extractor, arguments.bundle, arguments.folder, arguments.method, arguments.false_alarms)
    begin = device.seen
    if begin:
        print(f"going on after {begin} images", flush=True)
    for number, image in enumerate(images_of(arguments.images)):
        if number < begin:
            continue
        answer = device.see(image, arguments)
        if answer["changed"]:
            what = "the stream has turned external" if answer["external"] else "the stream is the client's own again"
            print(f"image {number}: {what} (mean e {answer['mean_e']:.2f})", flush=True)
        if answer["changed_looks"]:
            what = "unlike all that this device has seen" if answer["strange"] else "images look as usual again"
            print(f"image {number}: {what} (looks {answer['looks']:.1f})", flush=True)
        time.sleep(arguments.pause)
    print(f"{device.seen} images answered; the flag is {'up' if device.watch.up else 'down'}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (BtflError, OSError) as error:  # what was named is missing, damaged or of another training
        raise SystemExit(f"device_loop: {error}") from None
