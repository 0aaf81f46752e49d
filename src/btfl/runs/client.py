"""A client after training, as a method finds it: its bundle, and networks to copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from btfl.core.bundle import ClientBundle
from btfl.core.client import Weights, split_auxiliary
from btfl.errors import InputError

if TYPE_CHECKING:
    from btfl.models import Network


@dataclass(frozen=True, eq=False, repr=False)
class DeployedClient:
    """What a client has on its device when test time begins.

    Parameters
    ----------
    bundle : heads, likelihoods and statistics
    networks : weights of whole networks by name: ``global``, and others the recipe leaves, such as ``finetuned``
    model : how to build a network for those weights: ``name``, ``options``, ``image_shape`` and ``classes``; and what
        comes before it, where anything does: ``scaling`` and ``backbone``
    """

    bundle: ClientBundle
    networks: Mapping[str, Weights] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"DeployedClient({self.model.get('name', 'no model')}, networks: {', '.join(self.networks) or 'none'})"

    def network(self, name: str) -> Network:
        """Return a new network with these weights; changes to it do not change the client's own."""
        from btfl.models import build, load_arrays  # torch is needed from here on, and not before

        model = self.model
        own, _ = split_auxiliary(self._weights(name))
        network = build(model["name"], model["image_shape"], model["classes"], 0, **model["options"])
        load_arrays(network, own)
        return network.eval()

    def extractor(self) -> Network:
        """Return a new network whose features the bundle's heads read.

        That is ``global``; or ``personal``, where the server's weights are an extractor without a head (FedRep).
        """
        complete = any(key.startswith("head.") for key in self.networks.get("global", {}))
        return self.network("global" if complete or "personal" not in self.networks else "personal")

    def auxiliary(self, name: str, head: str) -> Weights:
        """Return the weights of the auxiliary head that was trained with the network of that name."""
        _, heads = split_auxiliary(self._weights(name))
        prefix = f"{head}."
        found = {key.removeprefix(prefix): array for key, array in heads.items() if key.startswith(prefix)}
        if not found:
            raise InputError(f"this client's '{name}' network was trained without a {head} head")
        return found

    def _weights(self, name: str) -> Weights:
        if name not in self.networks:
            raise InputError(f"this client keeps no '{name}' network, only {', '.join(self.networks) or 'none'}")
        return self.networks[name]
