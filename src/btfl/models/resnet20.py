"""ResNet-20 for small images (He et al. 2016) with GroupNorm in place of BatchNorm; d = 64 x width.

GroupNorm, because a client's batch statistics are its own label mix, and averaging them over clients
does harm (Hsieh et al. 2020).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  (the name the field uses)

from btfl.errors import InputError
from btfl.models.network import Network, check_image_shape

GROUPS = 2
BLOCKS = 3  # a stage; three stages of three blocks of two convolutions, a stem and a head: 20 layers
SMALLEST = 8  # 8 -> 4 -> 2: the last stage still sees neighbours


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(OrderedDict(conv=convolution, norm=nn.GroupNorm(GROUPS, outputs)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the convolutions found to the shortcut."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet20Extractor(nn.Module):
    """Stem, three stages, and the mean over all pixels: a mean of ReLU outputs, so never negative."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        planes = [16 * width, 32 * width, 64 * width]
        self.conv = nn.Conv2d(channels, planes[0], 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(GROUPS, planes[0])
        self.stage1 = _stage(planes[0], planes[0], stride=1)
        self.stage2 = _stage(planes[0], planes[1], stride=2)
        self.stage3 = _stage(planes[1], planes[2], stride=2)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features, (n, 64 x width)."""
        x = F.relu(self.norm(self.conv(images)))
        return self.stage3(self.stage2(self.stage1(x))).mean(dim=(2, 3))  # type: ignore[no-any-return]


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    rest = (Block(outputs, outputs, stride=1) for _ in range(BLOCKS - 1))
    return nn.Sequential(Block(inputs, outputs, stride), *rest)


def resnet20(image_shape: Sequence[int], classes: int, *, width: int = 1) -> Network:
    """Build ResNet-20; ``width`` multiplies every channel count (the paper: 1 for CIFAR-10, else 4)."""
    _, _, channels = check_image_shape(image_shape, SMALLEST, "resnet20")
    if not isinstance(width, int) or width < 1:
        raise InputError(f"resnet20: width must be a whole number of at least 1, not {width}")
    return Network(ResNet20Extractor(channels, width), 64 * width, classes, nonnegative=True)
