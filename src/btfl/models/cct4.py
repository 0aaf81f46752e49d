"""CCT-4/3x2, the Compact Convolutional Transformer (Hassani et al. 2021), with a last ReLU; d = 128.

Two 3x3 convolutions turn the image into tokens, four encoder layers of two heads look at them, and a learnt
weighting of the tokens (sequence pooling) stands in for a class token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  (the name the field uses)

from btfl.errors import InputError
from btfl.models.network import Network, check_image_shape

WIDTH = 128  # of a token, of the hidden layer in an encoder layer (MLP ratio 1), and of the features
HEADS = 2
LAYERS = 4
SMALLEST = 8  # 8 -> 4 -> 2: four tokens to attend to


class Attention(nn.Module):
    """Self-attention with two heads; only the attention weights are dropped out, as in the reference."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mix the tokens, (n, length, width) -> the same."""
        n, length, _ = tokens.shape
        query, key, value = self.qkv(tokens).view(n, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        out: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(n, length, WIDTH))
        return out


class EncoderLayer(nn.Module):
    """Attention, then a two-layer perceptron, each skipped in training with probability ``skip``."""

    def __init__(self, dropout: float, skip: float) -> None:
        super().__init__()
        self.skip = skip
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = Attention(dropout)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.fc1 = nn.Linear(WIDTH, WIDTH)
        self.fc2 = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Encode the tokens, (n, length, width) -> the same."""
        skip = self.skip if self.training else 0.0
        tokens = tokens + skipped_at_random(self.attention(self.norm1(tokens)), skip)
        # The second residual path starts after the norm, unlike in most transformers: so it is in CCT.
        tokens = self.norm2(tokens)
        return tokens + skipped_at_random(self.fc2(F.gelu(self.fc1(tokens))), skip)


def skipped_at_random(branch: torch.Tensor, skip: float) -> torch.Tensor:
    """Stochastic depth: leave a branch (n, length, width) out for some samples, and scale it up for the others."""
    if skip == 0.0:
        return branch
    kept = torch.rand(len(branch), 1, 1, dtype=branch.dtype, device=branch.device) >= skip
    return branch * kept / (1.0 - skip)


class Cct4Extractor(nn.Module):
    """Tokens of an image, encoded, pooled and cut off at zero."""

    def __init__(self, shape: tuple[int, int, int], attention_dropout: float, stochastic_depth: float) -> None:
        super().__init__()
        height, width, channels = shape
        # Each pool halves, rounding up.
        self.length = -(-height // 4) * -(-width // 4)
        self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(64, WIDTH, 3, padding=1, bias=False)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.position = nn.Parameter(torch.empty(1, self.length, WIDTH))
        self.layers = nn.Sequential(
            *(EncoderLayer(attention_dropout, stochastic_depth * i / (LAYERS - 1)) for i in range(LAYERS))
        )
        self.norm = nn.LayerNorm(WIDTH)
        # No bias: a softmax ignores a shift, so its gradient is rounding noise, which Adam would blow up
        # to full steps.
        self.weighting = nn.Linear(WIDTH, 1, bias=False)
        self._initialise()

    def _initialise(self) -> None:
        nn.init.trunc_normal_(self.position, std=0.2)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features, (n, 128)."""
        x = F.relu(self.pool(self.conv1(images)))
        x = F.relu(self.pool(self.conv2(x)))
        tokens = x.permute(0, 2, 3, 1).flatten(1, 2)  # no copy when the memory is channels_last
        if tokens.shape[1] != self.length:  # a length of 1 would broadcast without a word
            raise InputError(
                f"this cct4 was built for images of {self.length} tokens; {tuple(images.shape[2:])} has "
                f"{tokens.shape[1]}: its positional embedding fits one image size only"
            )
        tokens = self.norm(self.layers(tokens + self.position))
        weights = torch.softmax(self.weighting(tokens), dim=1)
        return F.relu((weights * tokens).sum(dim=1))


def cct4(
    image_shape: Sequence[int],
    classes: int,
    *,
    attention_dropout: float = 0.1,
    stochastic_depth: float = 0.1,
) -> Network:
    """Build CCT-4/3x2: 0.48 million parameters on 32x32x3 with 10 classes.

    In ``train()`` mode both options draw from torch's default generator, which is global: two runs agree only
    if training is wrapped in ``torch_draws(seed, "train", round, client)``. Set both to 0 and training draws
    nothing, so that the batches alone decide the result. ``eval()`` never draws. ``stochastic_depth`` is the
    chance to skip a path of the last layer; it grows evenly from 0 in the first.
    """
    shape = check_image_shape(image_shape, SMALLEST, "cct4")
    for option, chance in (("attention_dropout", attention_dropout), ("stochastic_depth", stochastic_depth)):
        if not 0.0 <= chance < 1.0:
            raise InputError(f"cct4: {option} is a probability, at least 0 and below 1, not {chance}")
    return Network(Cct4Extractor(shape, attention_dropout, stochastic_depth), WIDTH, classes, nonnegative=True)
