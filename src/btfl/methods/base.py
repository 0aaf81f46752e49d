"""What a test-time method is: built from what one client keeps, fed its stream batch by batch.

A method declares everything about itself in its own class: cards (names, titles, paper, style), settings, what it needs
and the columns of its trace. BTFL, Coherent and every baseline are such classes, and so is a method of your own.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, KeysView, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.client import Weights
from btfl.errors import InputError, UnknownNameError
from btfl.knobs import Knob, NoSettings, Settings
from btfl.methods.card import Card

Floats = NDArray[np.float64]
Takes = Literal["features", "images"]
Brings = Literal["nothing", "samples", "labels"]


class Client(Protocol):
    """A client on its device: its bundle, and networks for methods that change one."""

    @property
    def bundle(self) -> ClientBundle:
        """What the client keeps."""

    def network(self, name: str) -> Any:
        """Return a fresh torch network, ``global`` or ``finetuned``; the client's own weights stay as they were."""

    def auxiliary(self, name: str, head: str) -> Weights:
        """Return the weights of an auxiliary head that was trained with the network of that name."""


@dataclass(frozen=True)
class BundleOnly:
    """A client of which there is a bundle and nothing else: enough for every method that takes features."""

    bundle: ClientBundle

    def network(self, name: str) -> Any:
        """Refuse: there is no network."""
        raise InputError(f"this client has no '{name}' network, only a bundle: use a method that takes features")

    def auxiliary(self, name: str, head: str) -> Weights:
        """Refuse: there is no network."""
        return dict(self.network(name))


@dataclass(frozen=True)
class Column:
    """A column of a method's trace: one value for each sample."""

    help: str
    dtype: Any = np.float64


class Trace(Mapping[str, NDArray[Any]]):
    """Why each sample of the last batch was decided as it was: columns by name, ``trace["e"]`` or ``trace.e``."""

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def keys(self) -> KeysView[str]:
        """Return the names of the columns."""
        return self._columns.keys()

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name.startswith("_") or name not in self._columns:
            raise AttributeError(f"this trace has no column '{name}', only {', '.join(self.__dict__['_columns'])}")
        return self._columns[name]

    def __repr__(self) -> str:
        samples = len(next(iter(self._columns.values()), ()))
        return f"Trace({samples} samples: {', '.join(self)})"


class Method(ABC):
    """A test-time method. Subclass it in a file of your own and name it ``--method my_module:MyMethod``.

    A method sees the client's bundle and networks and the stream's features or images: no label, no other client's
    data. docs/adding-a-method.md has a whole example.

    Parameters
    ----------
    client : a ``ClientBundle``, or a client with a bundle and networks
    settings : an object of ``settings_class``; or give single settings by name

    Examples
    --------
    >>> method = Btfl(bundle, prune_above=5)                      # doctest: +SKIP
    >>> probabilities = method.predict(features)                  # doctest: +SKIP
    >>> saved = json.dumps(method.state)                          # doctest: +SKIP
    """

    cards: ClassVar[tuple[Card, ...]] = ()
    """Its names, titles and looks; the first one is the method with its default settings."""
    takes: ClassVar[Takes] = "features"
    """``features`` of the shared extractor, as float64 (n, d); or ``images``: samples as they are, uint8
    (n, height, width, channels) if they are images."""
    recipe: ClassVar[str] = "fedavg"
    """The training it stands on."""
    samples: ClassVar[tuple[str, ...]] = ("images", "signals", "vectors")
    """Kinds of samples it can be used on; the benchmark leaves it out on others."""
    settings_class: ClassVar[type[Settings]] = NoSettings
    """Its settings, each declared once with meaning, range and default (``btfl.knobs``)."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Which of the bundle's statistics it cannot do without."""
    columns: ClassVar[Mapping[str, Column]] = {}
    """The columns of its trace; ``e`` is the weight of the global head."""
    gradients: ClassVar[bool] = False
    """Whether it takes gradient steps at test time, which is slow; ``--method all`` leaves such methods out."""
    trained_later: ClassVar[bool] = False
    """Whether something of it is trained when the rounds have ended: a fine-tuned network, or a head of its own.
    Trained weights (``--from``) are those of the rounds, so it is trained again, and answers may differ on
    another make of processor."""
    exportable: ClassVar[bool] = False
    """Whether ``btfl export`` can write it as one ONNX graph."""
    enrols: ClassVar[Brings] = "labels"
    """The least that a device which took no part in training must bring, for the method to be of use to it."""
    memory_outlives_bundle: ClassVar[bool] = False
    """Whether its memory of a stream holds no features, so that it means the same with a bundle of later rounds."""
    sees_labels: ClassVar[bool] = False
    """Whether it is told the answers: a ceiling, and no method."""
    paper: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    """Where it comes from and what it does, for a method without a card."""

    def __init__(self, client: Client | ClientBundle, settings: Settings | None = None, **changes: Any) -> None:
        if not hasattr(client, "bundle") and not isinstance(client, ClientBundle):
            raise InputError(
                f"{type(self).__name__} is built from a ClientBundle, which ClientBundle.load(folder) reads, "
                f"not from a {type(client).__name__}"
            )
        self.client: Client = BundleOnly(client) if isinstance(client, ClientBundle) else client
        self.settings: Any = self.settings_class.make(**changes) if settings is None else settings
        if not isinstance(self.settings, self.settings_class):
            raise InputError(
                f"settings of {type(self).__name__} are a {self.settings_class.__name__}, not a "
                f"{type(settings).__name__}"
            )
        self.bundle.require(*self.needs, by=f"{self.card().title} (recipe '{self.recipe}')")
        self.found: tuple[Any, ...] | Floats | None = None
        """What ``predict`` found, in the order of ``columns``: a number or an array each; ``trace`` shows it."""

    @property
    def bundle(self) -> ClientBundle:
        """What the client keeps."""
        return self.client.bundle

    @abstractmethod
    def predict(self, batch: NDArray[Any]) -> Floats:
        """Return (n, classes) probabilities for the next n samples of the stream, given in its order."""

    @property
    def trace(self) -> Mapping[str, NDArray[Any]]:
        """What was found and decided for each sample of the last ``predict``, by the names of ``columns``."""
        return self._traced()

    def _traced(self) -> Trace:
        if not self.columns:
            return Trace({})
        if self.found is None:
            raise InputError("there is no trace yet: call predict first, which sets self.found in a method of your own")
        if len(self.found) != len(self.columns):
            raise InputError(
                f"{type(self).__name__} found {len(self.found)} values, but its columns are {', '.join(self.columns)}: "
                f"self.found holds one for each, in their order"
            )
        return Trace(
            {
                name: np.asarray(value, dtype=column.dtype).reshape(-1)
                for (name, column), value in zip(self.columns.items(), self.found, strict=True)
            }
        )

    @property
    def widening(self) -> Mapping[str, float]:
        """By column: how many times as large it is on new samples of the client's own as on those of its bundle."""
        return {}

    @property
    def state(self) -> dict[str, Any]:
        """The memory of the stream: plain JSON, so that a device can be switched off and go on."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        if state:
            raise InputError(f"{self.card().title} keeps no memory of a stream, so there is nothing to restore")

    def reset(self) -> None:
        """Forget the stream, and undo what was done to any network."""
        self.found = None

    @classmethod
    def card(cls) -> Card:
        """Return its card; a method of a user's own that has none gets one from its name."""
        return cls.cards[0] if cls.cards else Card(cls.__name__, cls.__name__, cls.summary, cls.paper)

    @classmethod
    def knobs(cls) -> tuple[Knob, ...]:
        """Return what is known of each of its settings."""
        return cls.settings_class.knobs() or _from_signature(cls)

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        """Raise an error for settings the method does not have, before any work is done."""
        if cls.settings_class is not NoSettings:
            cls.settings_class.make(**settings)
            return
        kinds = {p.name: p.kind for p in inspect.signature(cls).parameters.values()}
        anything = inspect.Parameter.VAR_KEYWORD
        if anything in kinds.values() and kinds.get("settings", anything) is anything:
            return  # one of a user's own that takes any keyword checks them itself
        known = [each.name for each in _from_signature(cls)]
        for name in settings:
            if name not in known:
                raise UnknownNameError(f"setting of {cls.card().title}", name, known)

    @classmethod
    def unsuitable(cls, client: Client) -> str | None:
        """Return why the method cannot be used on this client's model, if it cannot: the benchmark leaves it out."""
        return None

    def __repr__(self) -> str:
        changed = {each.name: getattr(self.settings, each.name, None) for each in self.settings_class.knobs()}
        told = [f"{each.name}={changed[each.name]!r}" for each in self.settings_class.knobs()
                if changed[each.name] != each.default]  # fmt: skip
        return f"{type(self).__name__}({', '.join([repr(self.bundle), *told])})"


def _from_signature(cls: type[Method]) -> tuple[Knob, ...]:
    """Return the settings of a class that takes them as keyword arguments, without ranges."""
    parameters = list(inspect.signature(cls).parameters.values())[1:]
    named = [p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD and p.name != "settings"]
    return tuple(Knob(p.name, type(p.default), p.default, "", p.default is None) for p in named)
