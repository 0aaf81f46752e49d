"""What training runs on: device, precision, compiler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import nn

from btfl.errors import InputError
from btfl.recipes.settings import Precision, TrainingSettings

_device = "cpu"  # where extractors of this process run


@contextmanager
def training_on(device: str) -> Iterator[None]:
    """Let extractors run on a device of torch's, ``cuda`` say, inside the block."""
    global _device
    before, _device = _device, device
    try:
        yield
    finally:
        _device = before


def current_device() -> str:
    """Return where extractors of this process run."""
    return _device


def equip(extractor: nn.Module, precision: Precision, compiled: bool, device: str) -> None:
    """Put the extractor on a device; in training mode it also computes at the precision, and compiled if asked.

    Images go in and features come out on the CPU and in fp32, so that no recipe needs to know. In evaluation mode the
    extractor computes as it will at test time: bundles hold statistics of the very features that are seen there.
    """
    extractor.to(device)
    plain = extractor.forward
    quick = torch.compile(plain) if compiled else plain

    def forward(images: torch.Tensor) -> torch.Tensor:
        images = images.to(device)
        if not extractor.training:
            return plain(images).cpu()  # type: ignore[no-any-return]
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            features: torch.Tensor = quick(images)
        return features.float().cpu()

    extractor.forward = forward


_ISA = "ONEDNN_MAX_CPU_ISA"
_BF16_TRIAL = """
import torch
from torch import nn
layers = nn.Sequential(nn.Conv2d(3, 32, 5, padding=2), nn.Flatten(), nn.Linear(32 * 16 * 16, 64))
with torch.autocast("cpu", torch.bfloat16):
    features = layers.to(memory_format=torch.channels_last)(torch.randn(8, 3, 16, 16))
features.float().sum().backward()
"""
_COMPILE_TRIAL = """
import torch
torch.compile(torch.nn.Linear(4, 4))(torch.ones(2, 4)).sum().backward()
"""


def check_hardware(settings: TrainingSettings) -> None:
    """Find out whether this machine can do what the settings ask for, before it is in the middle of it.

    A processor that announces bf16 instructions and does not allow them kills the process that tries; so the trial is
    made in a process of its own, once.
    """
    if settings.precision == "bf16" and _device == "cpu" and (ending := _try(_BF16_TRIAL)):
        hint = "" if _ISA in os.environ else f" set {_ISA}=AVX512_CORE_BF16 in the environment and try again, or"
        raise InputError(
            f"training in bf16 does not work on this processor: a small trial ended with {ending}. If its instructions "
            f"for bf16 matrices are the cause,{hint} leave the precision at fp32"
        )
    if settings.compile and (ending := _try(_COMPILE_TRIAL)):
        raise InputError(
            f"torch.compile does not work on this machine: a small trial ended with {ending}. It needs a C++ compiler "
            "(for example g++); install one, or leave compile at false"
        )


@cache
def _try(script: str) -> str:
    """Run a script in a process of its own; give nothing if it ends well, else how it ended."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["an error"])[-1]
