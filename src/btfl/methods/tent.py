"""Tent (Wang et al., ICLR 2021): make the model surer by tuning its normalisation layers alone."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from btfl.core.softmax import log_softmax
from btfl.errors import InputError
from btfl.methods.base import Adapter, Floats, Takes
from btfl.methods.checks import check_count, check_positive
from btfl.methods.tuning import Snapshot
from btfl.pixels.images import to_tensor
from btfl.runs.client import DeployedClient

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_NORMS = (*_BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm2d)


class Tent(Adapter):
    """A step of Adam on each batch's mean entropy, over the scales and shifts of the global model's normalisation.

    As published, a batch's answers are those of the pass that the step is made from, so a batch profits from the steps
    on those before it. BatchNorm, where there is any, normalises by the batch at hand.
    """

    takes: ClassVar[Takes] = "images"
    paper: ClassVar[str] = "Wang et al., ICLR 2021"
    summary: ClassVar[str] = "a step on each batch's entropy, over the normalisation layers of the global model"

    def __init__(self, client: DeployedClient, steps: int = 1, learning_rate: float = 0.001) -> None:
        check_count("tent", "steps", steps)
        check_positive("tent", "learning_rate", learning_rate)
        super().__init__(client)
        self.network = client.network("global").requires_grad_(False)
        layers = normalisation_layers(self.network)
        if not layers:
            raise InputError(f"tent: {_reason(client)}")
        for layer in layers:
            layer.requires_grad_(True)
            if isinstance(layer, _BATCH_NORMS):
                layer.train()
                layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
        self._parameters = [parameter for layer in layers for parameter in layer.parameters()]
        self._first = Snapshot(*layers)
        self._steps, self._learning_rate = steps, learning_rate
        self._optimiser = self._new_optimiser()

    @classmethod
    def unsuitable(cls, client: DeployedClient) -> str | None:
        """A model without normalisation layers, such as the cnn, leaves nothing to tune."""
        return None if normalisation_layers(client.network("global")) else _reason(client)

    @torch.enable_grad()
    def predict(self, batch: NDArray[Any]) -> Floats:
        """Return the batch's probabilities, and take the steps."""
        # Nobody wants a gradient of the images. But torch (2.13 still) crashes in GroupNorm's backward pass on the
        # channels-last memory of our images if nothing below the layer asks for one.
        images = to_tensor(batch).requires_grad_()
        for _ in range(self._steps):
            logits = self.network(images)
            self._optimiser.zero_grad(set_to_none=True)
            mean_entropy(logits).backward()  # type: ignore[no-untyped-call]
            self._optimiser.step()
        return np.exp(log_softmax(logits.detach().numpy().astype(np.float64)))

    def reset(self) -> None:
        """Undo all steps, and forget their moments."""
        self._first.restore()
        self._optimiser = self._new_optimiser()

    def _new_optimiser(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self._parameters, lr=self._learning_rate, fused=True)


def mean_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return the mean entropy, in nats, of (n, classes) predictions."""
    log_probabilities = logits.log_softmax(1)
    return -(log_probabilities.exp() * log_probabilities).sum(1).mean()


def normalisation_layers(network: nn.Module) -> list[nn.Module]:
    """Return the normalisation layers that have a scale and a shift."""
    return [module for module in network.modules() if isinstance(module, _NORMS) and module.weight is not None]


def _reason(client: DeployedClient) -> str:
    return f"the {client.model['name']} has no normalisation layer whose scale and shift could be tuned"
