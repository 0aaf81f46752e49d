"""ATP (Bao et al., NeurIPS 2023): a step on the batch's entropy, with a rate for each tensor that clients have learned.

With g_i the gradient of the batch's mean entropy for tensor i of the global model,

    p_i <- p_i - a_i g_i,

and the batch is answered by the network after the step. Some rates are negative: what helps is learned, not assumed.
The next batch starts from the global model again; or, online, the network that answers is the mean of what all
batches so far have made of it.

Where a model has BatchNorm, ATP also learns rates for its running statistics. None of our models has any, and those
of a user's own are left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from btfl.core.bundle import ClientBundle
from btfl.core.softmax import log_softmax
from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Floats, Method, Takes
from btfl.methods.card import VIOLET, Card
from btfl.methods.state import LARGEST_WEIGHT, check_keys, count, pack, unpack
from btfl.methods.tent import mean_entropy

if TYPE_CHECKING:
    import torch

    from btfl.models import Network

Memory = Literal["batch", "online"]


@dataclass(frozen=True)
class AtpSettings(Settings):
    """How ATP goes from batch to batch."""

    title: ClassVar[str] = "ATP"

    memory: Memory = knob("batch", "Each batch from the global model, or the mean over all batches so far.")


class Atp(Method):
    """The global model after a step on the batch's entropy, each tensor at a rate that was learned for it."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "atp",
            "ATP",
            "a step on each batch's entropy, at rates for each tensor that clients have learned",
            "Bao et al., NeurIPS 2023",
            VIOLET,
            "o dotted",
        ),
        Card(
            "atp-online",
            "ATP (online)",
            "the mean of the networks that each batch's step has led to, at rates that clients have learned",
            colour=VIOLET,
            marker="* dotted",
            line="dashed",
            settings={"memory": "online"},
        ),
    )
    takes: ClassVar[Takes] = "images"
    gradients: ClassVar[bool] = True
    recipe: ClassVar[str] = "atp"
    settings_class: ClassVar[type[Settings]] = AtpSettings
    settings: AtpSettings

    def __init__(self, client: Client | ClientBundle, settings: AtpSettings | None = None, **changes: Any) -> None:
        from btfl.models.tuning import Snapshot

        super().__init__(client, settings, **changes)
        self.network: Network = self.client.network("global")
        self.rates = self.client.auxiliary("global", "atp")["rates"]
        self._parameters = list(self.network.parameters())
        if self.rates.shape != (len(self._parameters),):
            raise InputError(f"ATP: {len(self.rates)} rates do not fit a network of {len(self._parameters)} tensors")
        self._first = Snapshot(self.network)
        self.reset()

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the probabilities of a batch of (samples, height, width, channels) images, after the step on it."""
        import torch

        from btfl.models.forward import logits
        from btfl.models.inputs import to_tensor

        images = np.ascontiguousarray(batch)
        adapt(self.network, to_tensor(images), self.rates.tolist())
        if self.settings.memory == "online":
            self._seen += 1
            with torch.no_grad():
                for mean, parameter in zip(self._mean, self._parameters, strict=True):
                    mean += (parameter - mean) / self._seen
                    parameter.copy_(mean)
        answers = logits(self.network, images)
        self._first.restore()
        return np.exp(log_softmax(answers.astype(np.float64)))

    @property
    def state(self) -> dict[str, Any]:
        """Online: how many batches came, and the mean of each tensor, as base64 text."""
        if self.settings.memory == "batch":
            return {}
        return {"seen": self._seen, "mean": [pack(mean.numpy()) for mean in self._mean]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        import torch

        if self.settings.memory == "batch":
            super().restore(state)
            return
        check_keys(state, ("seen", "mean"))
        seen, saved = count("seen", state["seen"]), state["mean"]
        if not isinstance(saved, list) or len(saved) != len(self._parameters):
            raise InputError(f"mean in the state must be a list of {len(self._parameters)} entries")
        arrays = [unpack("mean", one, LARGEST_WEIGHT) for one in saved]
        for array, parameter in zip(arrays, self._parameters, strict=True):
            if array.shape != tuple(parameter.shape):
                raise InputError(f"mean in the state has the shape {array.shape}, not {tuple(parameter.shape)}")
        self._seen, self._mean, self.found = seen, [torch.from_numpy(array) for array in arrays], None

    def reset(self) -> None:
        """Go back to the global model."""
        super().reset()
        self._first.restore()
        self._seen, self._mean = 0, [parameter.detach().clone() for parameter in self._parameters]


def adapt(network: Network, images: torch.Tensor, rates: list[float]) -> list[torch.Tensor]:
    """Take the step on the entropy of (n, channels, height, width) images in place, and return its gradients."""
    import torch

    network.eval()
    parameters = list(network.parameters())
    with torch.enable_grad():
        gradients = list(torch.autograd.grad(mean_entropy(network(images)), parameters))
    with torch.no_grad():
        for parameter, rate, gradient in zip(parameters, rates, gradients, strict=True):
            parameter.sub_(rate * gradient)
    return gradients
