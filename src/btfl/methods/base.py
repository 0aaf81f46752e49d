"""What a test-time method is: built from what one client keeps, fed its stream batch by batch."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from btfl.errors import UnknownNameError
from btfl.runs.client import DeployedClient

Floats = NDArray[np.float64]
Takes = Literal["features", "images"]


class Adapter(ABC):
    """A test-time method. Subclass it in a file of your own and name it ``--method my_module:MyAdapter``.

    The constructor takes the client and the method's settings as keyword arguments with defaults. A method sees the
    client's bundle and networks and the stream's features or images: no label, no other client's data.
    """

    takes: ClassVar[Takes] = "features"
    """``features`` of the shared extractor, as float64 (n, d); or ``images``, as uint8 (n, height, width, channels)."""
    recipe: ClassVar[str] = "fedavg"
    """The training it stands on."""
    mixes_two_heads: ClassVar[bool] = False
    """Whether its answer lies between the global and the personal head's, so that the oracle is its ceiling."""
    paper: ClassVar[str] = ""
    """Where it comes from."""
    summary: ClassVar[str] = ""
    """What it does at test time, in one line."""

    def __init__(self, client: DeployedClient) -> None:
        self.client = client

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        """Refuse settings the method does not have, before any work is done."""
        parameters = inspect.signature(cls).parameters.values()
        known = [p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD][1:]
        if len(known) + 1 == len(parameters):  # a method that takes any keyword checks them itself
            for name in settings:
                if name not in known:
                    raise UnknownNameError(f"setting of {cls.__name__}", name, known)

    @classmethod
    def unsuitable(cls, client: DeployedClient) -> str | None:
        """Say why the method cannot be used on this client's model, if it cannot: then the benchmark leaves it out."""
        return None

    @abstractmethod
    def predict(self, batch: NDArray[Any]) -> Floats:
        """Return (n, classes) probabilities for the next n samples of the stream."""

    def reset(self) -> None:  # noqa: B027 - a method without memory has nothing to forget
        """Forget the stream, and undo what was done to any network."""

    @property
    def trace(self) -> dict[str, NDArray[Any]]:
        """What is worth knowing of each sample of the last batch; ``e`` is the weight of the global head."""
        return {}
