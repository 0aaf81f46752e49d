"""Where a bundle or an extractor comes from: which training, after which round, with which extractor.

A bundle keeps it among its metadata, an ONNX file among its own. Heads read the features of one extractor, so a device
that takes an extractor of one training and a bundle of another would answer nonsense without noticing: ``check_fits``
refuses that in a sentence. What an older btfl wrote says nothing of where it comes from, and is not refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from btfl.errors import InputError

if TYPE_CHECKING:
    from btfl.core.bundle import ClientBundle

KEY = "provenance"
"""Its name among a bundle's metadata, and among those of an ONNX file, where it is JSON."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Provenance:
    """Where trained weights come from.

    Parameters
    ----------
    run : names the training: the same for all of its rounds, and for no other recipe, data or setting
    round : rounds that were trained
    extractor : sha256 over the extractor's weights, and over what comes before it
    classes : names of the classes, in the order of the heads' rows
    recipe, settings : what was trained, and how
    btfl : the version that made it
    method : the method that an exported graph decides by; empty: none, any method reads the bundle
    """

    run: str
    round: int
    extractor: str
    classes: tuple[str, ...]
    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    btfl: str = ""
    method: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {**asdict(self), "classes": list(self.classes), "settings": dict(self.settings)}

    def to_text(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(self.as_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, told: Any) -> Provenance:
        """Return what ``as_dict`` returned; anything else is an ``InputError``."""
        try:
            kinds = {"run": str, "round": int, "extractor": str, "recipe": str, "btfl": str, "method": str}
            plain = {name: told[name] for name in kinds if name in told}
            if any(type(value) is not kinds[name] for name, value in plain.items()):
                raise TypeError("an entry of another kind")
            return cls(classes=tuple(map(str, told["classes"])), settings=dict(told.get("settings", {})), **plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"it does not say where it comes from as btfl writes it: {error}") from None

    @classmethod
    def from_text(cls, text: str) -> Provenance:
        """Return what ``to_text`` wrote."""
        try:
            return cls.from_dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise InputError(f"it does not say where it comes from as btfl writes it: {error}") from None

    @classmethod
    def of_bundle(cls, bundle: ClientBundle) -> Provenance | None:
        """Return where a bundle comes from; None if it does not say, as those of an older btfl."""
        return None if KEY not in bundle.metadata else cls.from_dict(bundle.metadata[KEY])

    @classmethod
    def of_model(cls, metadata: Mapping[str, str]) -> Provenance | None:
        """Return where an ONNX file comes from, by its metadata; None if it does not say.

        With onnxruntime: ``Provenance.of_model(session.get_modelmeta().custom_metadata_map)``
        """
        return None if KEY not in metadata else cls.from_text(metadata[KEY])

    def __str__(self) -> str:
        return f"run {self.run}, round {self.round}"


def sha256_of(arrays: Mapping[str, NDArray[Any]], more: Any = None) -> str:
    """Return the sha256 over named arrays, and over plain JSON beside them."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    if more is not None:
        digest.update(json.dumps(more, sort_keys=True).encode())
    return digest.hexdigest()


def check_fits(bundle: Provenance | None, extractor: Provenance | None) -> None:
    """Raise an ``InputError`` unless a bundle's heads read this extractor's features; a note if either does not say.

    Example
    -------
    >>> check_fits(Provenance.of_bundle(bundle), Provenance.of_model(metadata))          # doctest: +SKIP
    """
    if bundle is None or extractor is None:
        which = "bundle" if bundle is None else "extractor"
        log.warning("the %s does not say which training it comes from (an older btfl made it): not compared", which)
    elif bundle.extractor != extractor.extractor:
        raise InputError(
            f"the bundle is of {bundle}, the extractor of {extractor}: its weights are others than the bundle's heads "
            "were made for. Export both together"
        )


def check_renewal(old: Provenance | None, new: Provenance | None) -> None:
    """Raise an ``InputError`` unless a bundle may take another's place: the same run and classes, no earlier round."""
    if old is None or new is None:
        log.warning("a bundle does not say which training it comes from (an older btfl made it): not compared")
        return
    if old.classes != new.classes:
        raise InputError(
            f"the new bundle knows other classes than the old one: {', '.join(new.classes)[:200]} instead of "
            f"{', '.join(old.classes)[:200]}. Begin with it as a new device"
        )
    if old.run != new.run:
        raise InputError(
            f"the new bundle is of another training ({new}) than the old one ({old}). Begin with it as a new device"
        )
    if new.round < old.round:
        raise InputError(f"the new bundle is the older one: {new}, the device has {old}")
