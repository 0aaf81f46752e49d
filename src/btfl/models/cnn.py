"""The simple CNN of the paper: two 5x5 convolutions and one hidden layer, no normalisation; d = 64."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from btfl.models.network import Network, check_image_shape

FEATURES = 64
SMALLEST = 16  # 16 -> 12 -> 6 -> 2 -> 1: one pixel is left for the hidden layer


def cnn(image_shape: Sequence[int], classes: int, *, bias: bool = False) -> Network:
    """Build the CNN; with ``bias`` every layer has one, the head included.

    Without biases, as the released programs train it, it has 156,640 parameters on 32x32x3 with 10 classes.
    """
    height, width, channels = check_image_shape(image_shape, SMALLEST, "cnn")
    rows, columns = (((size - 4) // 2 - 4) // 2 for size in (height, width))
    # The ReLU comes after the pool: the two commute, and so it has a quarter of the values to look at.
    extractor = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 32, kernel_size=5, bias=bias),
            pool1=nn.MaxPool2d(2),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(32, 64, kernel_size=5, bias=bias),
            pool2=nn.MaxPool2d(2),
            relu2=nn.ReLU(),
            flatten=nn.Flatten(),
            fc=nn.Linear(64 * rows * columns, FEATURES, bias=bias),
            relu3=nn.ReLU(),
        )
    )
    return Network(extractor, FEATURES, classes, bias=bias, nonnegative=True)
