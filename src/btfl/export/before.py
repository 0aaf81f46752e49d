"""What happens to a sample before the network that a federation trained: scaling, or a frozen backbone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from btfl.backbones.load import Backbone, load_backbone
from btfl.errors import InputError


class Before(nn.Module):
    """Samples as a device has them in, what the network takes out.

    Parameters
    ----------
    sample_shape : of the samples: (height, width, channels), (time, channels) or (d,)
    backbone : what turns them into features, if anything does
    scaling : mean and deviation of each channel, column or feature, as lists; None: nothing is scaled
    """

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, sample_shape: tuple[int, ...], backbone: Backbone | None, scaling: Any) -> None:
        super().__init__()
        self.sample_shape = sample_shape
        self._backbone = backbone
        self.module = None if backbone is None else backbone.module
        if scaling is not None:
            for name in ("mean", "deviation"):
                self.register_buffer(name, torch.tensor(scaling[name], dtype=torch.float32))
        self._scales = scaling is not None

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return what the network takes, still with channels last."""
        if self._backbone is not None and self.module is not None:
            samples = self.module(self._backbone.prepared(samples))
        return (samples - self.mean) / self.deviation if self._scales else samples


def before(model: Mapping[str, Any]) -> Before:
    """Return what comes before a network; a backbone must be the one that it was trained with.

    Parameters
    ----------
    model : of a ``DeployedClient`` or a ``TrainedFederation``
    """
    told, scaling = model.get("backbone"), model.get("scaling")
    if told is None:
        return Before(tuple(model["image_shape"]), None, scaling)
    shape = tuple(told["sample_shape"])
    backbone = load_backbone(told["name"], shape, told["image_size"])
    if backbone.spec["weights"] != told["weights"]:
        raise InputError(
            f"the backbone {told['name']} has other weights here than the client was trained with: install the same "
            f"version, or train again"
        )
    return Before(shape, backbone, told.get("scaling"))
