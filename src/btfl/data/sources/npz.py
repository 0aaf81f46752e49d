"""Reading the user's npz files: never a pickle, and every refusal names the file and the key."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.data.samples import Labels, Values, as_values, kind_of
from btfl.errors import DataError, listed
from btfl.pixels.types import Images

MOST_CLASSES = 100_000
"""Of any dataset."""


class Npz:
    """An open npz file; use it in a ``with`` block. Arrays are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise DataError(f"{path} is a folder, not an npz file" if path.is_dir() else f"there is no file {path}")
        try:
            with path.open("rb") as file:
                single = file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX
            if not single and not zipfile.is_zipfile(path):  # numpy would leave it open
                raise zipfile.BadZipFile("it is no zip file, or its end is missing")
            # not opened: numpy would make room for as much as its header promises
            opened = None if single else np.load(path, allow_pickle=False)
        except (ValueError, EOFError, OSError, NotImplementedError, SyntaxError, zipfile.BadZipFile) as error:
            raise DataError(f"{path.name} is not an npz file, or it is damaged: {error}") from error
        if not isinstance(opened, np.lib.npyio.NpzFile):
            raise DataError(f"{path.name} holds a single array (npy); an npz with named arrays is needed")
        self._file = opened

    def __enter__(self) -> Npz:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __contains__(self, key: str) -> bool:
        return key in self._file.files

    @property
    def keys(self) -> list[str]:
        """The names of the arrays."""
        return list(self._file.files)

    def read(self, key: str) -> NDArray[Any]:
        """Return one array as it is stored."""
        if key not in self:
            raise DataError(f"{self.path.name} has no array '{key}'; it has {', '.join(self.keys) or 'none'}")
        try:
            array: NDArray[Any] = self._file[key]
        except ValueError as error:
            if "pickle" in str(error) or "Object" in str(error):
                raise DataError(
                    f"{self.path.name}: '{key}' is an object array, that is a pickle, which btfl does not "
                    f"open; save it with a plain dtype (numbers, or strings of dtype 'U'), and samples of one size"
                ) from error
            raise DataError(f"{self.path.name}: '{key}' is damaged: {error}") from error
        except RuntimeError as error:  # so says zipfile: a password, or an unknown compression
            raise DataError(f"{self.path.name}: '{key}' cannot be opened: {error}; save it without that") from error
        except MemoryError as error:
            raise DataError(f"{self.path.name}: '{key}' does not fit into memory") from error
        except (OSError, EOFError, SyntaxError, TypeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
            raise DataError(f"{self.path.name}: '{key}' is damaged: {error}") from error
        if not isinstance(array, np.ndarray):
            raise DataError(f"{self.path.name}: '{key}' is no array")
        return array

    def samples(self, key: str) -> Values:
        """Return an array of samples: uint8 images; or numbers, which become float32: signals or vectors.

        Images are (n, height, width, channels), or (n, height, width) if they are grey; signals (n, time, channels),
        of any dtype but uint8; vectors (n, d).
        """
        array = self.read(key)
        if array.ndim == 4 or (array.ndim == 3 and array.dtype == np.uint8):
            return self._as_images(key, array)
        if array.ndim not in (2, 3) or array.dtype.kind not in "iufb":
            raise DataError(
                f"{self.path.name}: '{key}' is {array.dtype} of shape {array.shape}; samples are uint8 images (n, "
                f"height, width, 1 or 3) or (n, height, width), signals (n, time, channels) or vectors (n, d)"
            )
        if len(array) == 0:
            raise DataError(f"{self.path.name}: '{key}' holds no sample")
        try:
            return as_values(array)
        except DataError as error:
            raise DataError(f"{self.path.name}: '{key}': {error}") from None

    def images(self, key: str) -> Images:
        """Return an array of images as uint8 (n, height, width, channels); grey ones may lack the last axis."""
        return self._as_images(key, self.read(key))

    def _as_images(self, key: str, array: NDArray[Any]) -> Images:
        where = f"{self.path.name}: '{key}'"
        if array.dtype != np.uint8:
            how = "(x * 255).round().astype('uint8')" if array.dtype.kind == "f" else "x.astype('uint8')"
            raise DataError(f"{where} is {array.dtype}; images must be uint8, 0 to 255: perhaps {how}")
        if array.ndim == 3:
            array = array[..., None]
        if array.ndim != 4 or array.shape[3] not in (1, 3):
            first = array.ndim == 4 and array.shape[1] in (1, 3)
            hint = "; it seems to have its channels first: x.transpose(0, 2, 3, 1)" if first else ""
            raise DataError(
                f"{where} has shape {array.shape}; images are (n, height, width, 1 or 3) or (n, height, width){hint}"
            )
        if len(array) == 0:
            raise DataError(f"{where} holds no image")
        return array

    def labels(self, key: str, samples: Values, samples_key: str, classes: Sequence[str] | None = None) -> Labels:
        """Return the labels that belong to an array of samples.

        Parameters
        ----------
        key, samples_key : names of both arrays
        samples : what is labelled
        classes : their names; with them labels may be strings, too, and become positions among these
        """
        array = self.read(key)
        where, kind = f"{self.path.name}: '{key}'", kind_of(samples.shape[1:])
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1 or array.dtype.kind not in ("iu" if classes is None else "iuUS"):
            raise DataError(
                f"{where} must hold one whole number (or string) for each of the {kind}, not {array.dtype} of shape "
                f"{array.shape}"
            )
        if len(array) != len(samples):
            raise DataError(f"{where} holds {len(array):,} labels for the {len(samples):,} {kind} of '{samples_key}'")
        if array.dtype.kind in "US":
            return self._named(key, array, classes or ())
        if array.size and int(array.max()) >= np.iinfo(np.int64).max:
            raise DataError(f"{where} holds the label {array.max()}, which is no class's")
        return array.astype(np.int64)

    def _named(self, key: str, array: NDArray[Any], classes: Sequence[str]) -> Labels:
        found, index = np.unique(array, return_inverse=True)
        place = {name: number for number, name in enumerate(classes)}
        names = self.texts(key, found)
        if strange := [name for name in names if name not in place]:
            raise DataError(
                f"{self.path.name}: '{key}' holds the labels {listed(strange, 10)}, which are none of the classes "
                f"{listed(classes, 10)}"
            )
        return np.array([place[name] for name in names], dtype=np.int64)[index.reshape(-1)]

    def label_names(self, key: str) -> tuple[str, ...] | None:
        """Return the different labels, sorted, if they are strings."""
        array = self.read(key)
        if array.dtype.kind not in "US":
            return None
        return self.texts(key, np.unique(array))

    def classes_of(self, key: str, labels: Labels) -> tuple[str, ...]:
        """Name the classes 0 to the largest label, which must not be larger than the data can bear.

        A class needs a sample: with far more classes than samples, a label is wrong, and training would not end.
        """
        largest, most = int(labels.max()), min(max(10 * len(labels), 1000), MOST_CLASSES)
        if largest >= most:
            raise DataError(
                f"{self.path.name}: '{key}' holds the label {largest:,} (sample {int(labels.argmax()):,}); with "
                f"{len(labels):,} samples labels may go up to {most - 1:,}: number the classes 0, 1, 2, ..."
            )
        return tuple(str(i) for i in range(largest + 1))

    def class_names(self, key: str = "classes") -> tuple[str, ...]:
        """Return the names of the classes."""
        array = self.read(key)
        if array.ndim != 1 or array.dtype.kind not in "US" or len(array) == 0:
            raise DataError(f"{self.path.name}: '{key}' must be a list of names, not {array.dtype} of {array.shape}")
        if len(array) > MOST_CLASSES:
            raise DataError(f"{self.path.name}: '{key}' names {len(array):,} classes; the limit is {MOST_CLASSES:,}")
        return self.texts(key, array)

    def texts(self, key: str, array: NDArray[Any]) -> tuple[str, ...]:
        """Return an array of strings, bytes or numbers as strings."""
        try:
            return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in array.tolist())
        except UnicodeDecodeError as error:
            raise DataError(f"{self.path.name}: '{key}' holds text that is not UTF-8: {error}") from None

    def in_range(self, key: str, labels: Labels, classes: Sequence[str]) -> Labels:
        """Refuse labels that index no class."""
        wrong = np.flatnonzero((labels < 0) | (labels >= len(classes)))
        if len(wrong):
            raise DataError(
                f"{self.path.name}: '{key}' holds the label {labels[wrong[0]]} (sample {wrong[0]:,}), but there "
                f"are {len(classes)} classes, 0 to {len(classes) - 1}"
            )
        return labels
