"""A small 1-D CNN for signals, such as a phone's acceleration: three convolutions over time, no normalisation; d = 64.

Without normalisation, because the level of a sensor says something (which way gravity points), and because averages of
running statistics over clients are not those of any client. Not a model of the paper.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from btfl.errors import InputError
from btfl.models.network import Network, check_shape

FEATURES = 64
SHORTEST = 16  # 16 -> 8 -> 4: there are still steps to take the mean of


def cnn1d(sample_shape: Sequence[int], classes: int, *, width: int = 32) -> Network:
    """Build the CNN for signals (time, channels); ``width``: channels of the first convolution, twice as many after."""
    time, channels = check_shape(sample_shape, "signals", "cnn1d")
    if time < SHORTEST:
        raise InputError(f"cnn1d needs signals of at least {SHORTEST} steps, not {time} (samples are time, channels)")
    if not isinstance(width, int) or width < 1:
        raise InputError(f"cnn1d: width must be a whole number of at least 1, not {width}")
    extractor = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv1d(channels, width, kernel_size=7, stride=2, padding=3),
            relu1=nn.ReLU(),
            conv2=nn.Conv1d(width, 2 * width, kernel_size=5, stride=2, padding=2),
            relu2=nn.ReLU(),
            conv3=nn.Conv1d(2 * width, 2 * width, kernel_size=3, padding=1),
            relu3=nn.ReLU(),
            mean=nn.AdaptiveAvgPool1d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(2 * width, FEATURES),
            relu4=nn.ReLU(),
        )
    )
    return Network(extractor, FEATURES, classes, bias=True, nonnegative=True)
