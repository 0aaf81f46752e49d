"""Tent (Wang et al., ICLR 2021): make the model surer by tuning its normalisation layers alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.softmax import log_softmax
from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Floats, Method, Takes
from btfl.methods.card import VIOLET, Card
from btfl.methods.state import LARGEST_WEIGHT, check_keys, count, pack, unpack

if TYPE_CHECKING:
    import torch

    from btfl.models import Network

_MOMENTS = {"first": "exp_avg", "second": "exp_avg_sq"}  # torch's names of Adam's moments


@dataclass(frozen=True)
class TentSettings(Settings):
    """How Tent tunes."""

    title: ClassVar[str] = "Tent"

    steps: int = knob(1, "Steps for each batch.", least=1)
    learning_rate: float = knob(0.001, "Adam's learning rate.", above=0)


class Tent(Method):
    """A step of Adam on each batch's mean entropy, over the scales and shifts of the global model's normalisation.

    As published, a batch's answers are those of the pass that the step is made from, so a batch profits from the steps
    on those before it. BatchNorm, where there is any, normalises by the current batch.
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "tent",
            "Tent",
            "a step on each batch's entropy, over the normalisation layers of the global model",
            "Wang et al., ICLR 2021",
            VIOLET,
            "> open",
            "dashed",
        ),
    )
    takes: ClassVar[Takes] = "images"
    gradients: ClassVar[bool] = True
    settings_class: ClassVar[type[Settings]] = TentSettings
    settings: TentSettings

    def __init__(self, client: Client | ClientBundle, settings: TentSettings | None = None, **changes: Any) -> None:
        from torch.nn.modules.batchnorm import _BatchNorm

        from btfl.models.tuning import Snapshot

        super().__init__(client, settings, **changes)
        self.network: Network = self.client.network("global").requires_grad_(False)
        layers = normalisation_layers(self.network)
        if not layers:
            raise InputError(f"Tent: {_reason(self.client)}")
        for layer in layers:
            layer.requires_grad_(True)
            if isinstance(layer, _BatchNorm):
                layer.train()
                layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
        self._parameters = [parameter for layer in layers for parameter in layer.parameters()]
        self._first = Snapshot(*layers)
        self._optimiser = self._new_optimiser()

    @classmethod
    def unsuitable(cls, client: Client) -> str | None:
        """A model without normalisation layers, such as the cnn, leaves nothing to tune."""
        return None if normalisation_layers(client.network("global")) else _reason(client)

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the probabilities of a batch of (samples, height, width, channels) images, and take the steps."""
        import torch

        from btfl.models.inputs import to_tensor

        with torch.enable_grad():
            # Nobody wants a gradient of the images. But torch (2.13 still) crashes in GroupNorm's backward pass on the
            # channels-last memory of our images if nothing below the layer asks for one.
            images = to_tensor(np.ascontiguousarray(batch)).requires_grad_()
            for _ in range(self.settings.steps):
                logits = self.network(images)
                self._optimiser.zero_grad(set_to_none=True)
                mean_entropy(logits).backward()  # type: ignore[no-untyped-call]
                self._optimiser.step()
        return np.exp(log_softmax(logits.detach().numpy().astype(np.float64)))

    @property
    def state(self) -> dict[str, Any]:
        """Of each scale and shift: its value, how many steps it took, and Adam's moments, as base64 text."""
        return {"parameters": [self._saved(parameter) for parameter in self._parameters]}

    def _saved(self, parameter: torch.nn.Parameter) -> dict[str, Any]:
        value, known = _array(parameter), self._optimiser.state.get(parameter, {})
        moments = {ours: pack(_array(known[name]) if known else 0 * value) for ours, name in _MOMENTS.items()}
        return {"value": pack(value), "steps": int(known["step"]) if known else 0, **moments}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        import torch

        check_keys(state, ("parameters",))
        saved = state["parameters"]
        if not isinstance(saved, list) or len(saved) != len(self._parameters):
            raise InputError(f"parameters in the state must be a list of {len(self._parameters)} entries")
        read = [_read(one, parameter) for one, parameter in zip(saved, self._parameters, strict=True)]
        self._optimiser, self.found = self._new_optimiser(), None
        moments: dict[int, dict[str, torch.Tensor]] = {}
        for i, ((steps, arrays), parameter) in enumerate(zip(read, self._parameters, strict=True)):
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            with torch.no_grad():
                parameter.copy_(tensors.pop("value"))
            if steps:  # before its first step Adam remembers nothing of a parameter
                named = {name: tensors[ours] for ours, name in _MOMENTS.items()}
                moments[i] = {"step": torch.tensor(float(steps)), **named}
        self._optimiser.load_state_dict({**self._optimiser.state_dict(), "state": moments})

    def reset(self) -> None:
        """Undo all steps, and forget their moments."""
        super().reset()
        self._first.restore()
        self._optimiser = self._new_optimiser()

    def _new_optimiser(self) -> torch.optim.Optimizer:
        import torch

        return torch.optim.Adam(self._parameters, lr=self.settings.learning_rate, fused=True)


def mean_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return the mean entropy, in nats, of (n, classes) predictions."""
    log_probabilities = logits.log_softmax(1)
    return -(log_probabilities.exp() * log_probabilities).sum(1).mean()


def normalisation_layers(network: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the normalisation layers that have a scale and a shift."""
    from torch import nn

    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm2d)
    return [module for module in network.modules() if isinstance(module, norms) and module.weight is not None]


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().numpy()
    return array


def _read(saved: Any, parameter: torch.nn.Parameter) -> tuple[int, dict[str, NDArray[np.float32]]]:
    """Return how many steps a saved parameter took, and its value and moments."""
    check_keys(saved, ("value", "steps", *_MOMENTS))
    arrays = {name: unpack(name, saved[name], LARGEST_WEIGHT) for name in ("value", *_MOMENTS)}
    for name, array in arrays.items():
        if array.shape != tuple(parameter.shape):
            raise InputError(f"{name} in the state has the shape {array.shape}, not {tuple(parameter.shape)}")
    if (arrays["second"] < 0).any():
        raise InputError("second in the state must not be negative: it is a mean of squares")
    return count("steps", saved["steps"]), arrays


def _reason(client: Client) -> str:
    name = getattr(client, "model", {}).get("name", "network")
    return f"the {name} has no normalisation layer whose scale and shift could be tuned"
