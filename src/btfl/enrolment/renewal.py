"""A device that takes a new bundle and goes on with what it remembers of its stream."""

from __future__ import annotations

from typing import TypeVar

from btfl.core.bundle import ClientBundle
from btfl.core.provenance import Provenance, check_renewal
from btfl.errors import InputError
from btfl.methods.base import Method

AnyMethod = TypeVar("AnyMethod", bound=Method)


def renewed(method: AnyMethod, bundle: ClientBundle) -> AnyMethod:
    """Return the same method with a new bundle: the same settings, and the memory of the stream.

    Refused, in a sentence: a bundle of another training, of other classes or of an earlier round; and a method whose
    memory holds features of the old extractor, which mean nothing to the new one.

    Parameters
    ----------
    method : as the device has it, at any place of its stream
    bundle : of a later round of the same training

    Example
    -------
    >>> method = renewed(method, ClientBundle.load("new-bundle"))                       # doctest: +SKIP
    """
    check_renewal(Provenance.of_bundle(method.bundle), Provenance.of_bundle(bundle))
    if bundle.classes != method.bundle.classes:
        raise InputError(
            f"the new bundle has {bundle.classes} classes, the old one {method.bundle.classes}. Begin with it as a new "
            "device"
        )
    if method.state and not method.memory_outlives_bundle:
        raise InputError(
            f"{method.card().title} remembers features of the old extractor, which a new bundle does not read: begin "
            "with the new bundle and an empty memory"
        )
    return carried_over(method, bundle)


def carried_over(method: AnyMethod, bundle: ClientBundle) -> AnyMethod:
    """Return the same method with another bundle and the same memory; nothing is asked about the bundle."""
    fresh = type(method)(bundle, method.settings)
    fresh.restore(method.state)
    return fresh
