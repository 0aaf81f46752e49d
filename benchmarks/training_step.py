"""What a training step costs, and what could make it cheaper: memory layout, fused SGD, bfloat16, torch.compile.

Run as ``python benchmarks/training_step.py``; prints Markdown. A step is zero_grad, forward, cross-entropy, backward
and SGD (for cct4 too, which is trained with Adam) on one batch of 32 images of 32x32, one thread. "What we do"
(channels-last, fused SGD, float32) is timed in turn with every variant, in the same process, so the ratios hold on a
busy machine too. bfloat16 and torch.compile run in processes of their own, because they may die: bfloat16 with SIGILL
where oneDNN takes the processor for one that it is not (tried as it is, and with
``ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16``), torch.compile for want of a C++ compiler.

GFLOP/s are counted operations (torch's own count, two for a multiply-add, convolutions and matrix products only) over
the median time; the machine's best is that of float32 matrix products in the same run.

``--accuracy`` also trains the cnn for a while on CIFAR-10 in float32 and in bfloat16, from the same initial weights in
the same order, and compares the accuracy on images held out.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from btfl.data.catalogue import load_source
from btfl.data.source import Samples, Source
from btfl.data.subset import take
from btfl.models import Network, build
from btfl.models.forward import logits
from btfl.randomness import generator
from btfl.recipes.batches import shuffled_batches

MODELS = ("cnn", "resnet20", "cct4")
IMAGE_SHAPE, CLASSES, BATCH = (32, 32, 3), 10, 32
OURS = "channels-last, fused SGD (what we do)"
FIX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
HELD_OUT = 2_000

Step = Callable[[], object]


def make_step(
    model: str, channels_last: bool = True, fused: bool = True, bfloat16: bool = False, compiled: bool = False
) -> Step:
    """Return a training step of a model as a function of nothing."""
    network: Network = build(model, IMAGE_SHAPE, CLASSES, 0)
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.standard_normal((BATCH, 3, 32, 32), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(0, CLASSES, BATCH))
    if channels_last:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = images.contiguous(memory_format=torch.channels_last)
    network.train()
    network(images)  # the network looks at its features once, which a compiled one could not
    optimiser = torch.optim.SGD(
        network.parameters(), lr=0.01, weight_decay=5e-4, fused=fused or None, foreach=None if fused else True
    )
    forward: Callable[[torch.Tensor], torch.Tensor] = torch.compile(network) if compiled else network

    def step() -> float:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16) if bfloat16 else nullcontext():
            value = nn.functional.cross_entropy(forward(images), labels)
        value.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return float(value.detach())

    return step


def alternate(steps: Mapping[str, Step], rounds: int) -> dict[str, list[float]]:
    """Time the steps in turn: milliseconds of each."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(3):  # fills caches, compiles
            step()
    for _ in range(rounds):
        for name, step in steps.items():
            begun = time.perf_counter()
            step()
            times[name].append(1000 * (time.perf_counter() - begun))
    return times


def count_operations(model: str) -> int:
    """Return the floating-point operations of a step."""
    step = make_step(model)
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def best_product(rounds: int) -> tuple[float, int]:
    """Return the best GFLOP/s of a float32 matrix product, and the size it was reached at."""
    best, at = 0.0, 0
    for size in (256, 512, 1024, 2048):
        a, b = torch.rand(size, size), torch.rand(size, size)
        for _ in range(max(rounds // 5, 3)):
            begun = time.perf_counter()
            torch.mm(a, b)
            rate = 2e-9 * size**3 / (time.perf_counter() - begun)
            if rate > best:
                best, at = rate, size
    return best, at


def in_a_process(task: str, environment: Mapping[str, str], *arguments: str) -> Any:
    """Do a task in a process of its own; give its answer, or a sentence about how it failed."""
    done = subprocess.run(
        [sys.executable, __file__, "--task", task, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    if done.returncode < 0:
        return f"dies with {signal.Signals(-done.returncode).name}"
    said = [line for line in done.stderr.splitlines() if "Error" in line]
    return f"fails: {(said or done.stderr.splitlines() or ['no reason given'])[-1].strip()[:160]}"


def row(model: str, variant: str, times: Mapping[str, list[float]], name: str, operations: int, best: float) -> str:
    """Return a row of the table."""
    mine, yardstick = np.array(times[name]), np.array(times[OURS])
    rate = 1e-6 * operations / float(np.median(mine))
    return (
        f"| {model} | {variant} | {np.median(mine):.2f} | {mine.min():.2f} | {np.median(mine / yardstick):.2f} "
        f"| {rate:.1f} | {100 * rate / best:.0f} % |"
    )


def print_steps(models: list[str], rounds: int) -> None:
    """Print the table of steps."""
    best, size = best_product(rounds)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, one thread, batch {BATCH}")
    print(f"the machine's best: {best:.1f} GFLOP/s, a float32 matrix product of {size}x{size}\n")
    print("| model | step | ms, median | least | times what we do | GFLOP/s | of the best |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for model in models:
        operations = count_operations(model)
        times = alternate(
            {
                "plain (contiguous, foreach SGD)": make_step(model, channels_last=False, fused=False),
                "channels-last, foreach SGD": make_step(model, fused=False),
                OURS: make_step(model),
            },
            rounds,
        )
        for name in times:
            print(row(model, name, times, name, operations, best), flush=True)
        for variant, task, environment in (
            ("bfloat16 autocast, as it is", "bfloat16", {}),
            ("bfloat16 autocast, ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16", "bfloat16", FIX),
            ("torch.compile, float32", "compile", {}),
        ):
            answer = in_a_process(task, environment, "--models", model, "--rounds", str(rounds))
            if isinstance(answer, str):
                print(f"| {model} | {variant} | {answer} | | | | |", flush=True)
            else:
                print(row(model, variant, answer, task, operations, best), flush=True)


def train(source: Source, epochs: int, seed: int, bfloat16: bool) -> float:
    """Train the cnn and give its accuracy, in float32, on the images held out."""
    order = generator(seed, "accuracy").permutation(len(source.pool))
    images, labels = source.pool.values[order], source.pool.labels[order]
    network = build("cnn", IMAGE_SHAPE, CLASSES, seed).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True)
    rng, data = generator(seed, "shuffling"), Samples(images[HELD_OUT:], labels[HELD_OUT:])
    network.train()
    for _ in range(epochs):
        for batch, targets in shuffled_batches(data, BATCH, rng, augment=True):
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16) if bfloat16 else nullcontext():
                value = nn.functional.cross_entropy(network(batch), targets)
            value.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return float((logits(network, images[:HELD_OUT]).argmax(1) == labels[:HELD_OUT]).mean())


def print_accuracy(images: int, epochs: int, seeds: int) -> None:
    """Print what bfloat16 does to the accuracy."""
    print(f"\ncnn, {images} images of CIFAR-10, {epochs} epochs, SGD 0.01 with momentum 0.9; {HELD_OUT} held out\n")
    print("| precision | accuracy on images held out, by seed | mean |")
    print("| --- | --- | --- |", flush=True)
    sizes = ("--images", str(images), "--epochs", str(epochs), "--seeds", str(seeds))
    for name, task, environment in (
        ("float32", "train-float32", {}),
        ("bfloat16 autocast, as it is", "train-bfloat16", {}),
        ("bfloat16 autocast, ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16", "train-bfloat16", FIX),
    ):
        answer = in_a_process(task, environment, *sizes)
        if isinstance(answer, str):
            print(f"| {name} | {answer} | |", flush=True)
        else:
            print(f"| {name} | {', '.join(f'{a:.4f}' for a in answer)} | {np.mean(answer):.4f} |", flush=True)


def do(task: str, arguments: argparse.Namespace) -> Any:
    """Do what a process of its own is for."""
    if task.startswith("train"):
        source = take(load_source("cifar10", shift="none"), arguments.images + HELD_OUT)
        return [train(source, arguments.epochs, seed, task == "train-bfloat16") for seed in range(arguments.seeds)]
    (model,) = arguments.models
    variant = make_step(model, bfloat16=task == "bfloat16", compiled=task == "compile")
    return alternate({OURS: make_step(model), task: variant}, arguments.rounds)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=60, help="how often each step is timed")
    parser.add_argument("--accuracy", action="store_true", help="also train in float32 and bfloat16, and compare")
    parser.add_argument("--images", type=int, default=10_000, help="of CIFAR-10, to train on for --accuracy")
    parser.add_argument("--epochs", type=int, default=10, help="for --accuracy")
    parser.add_argument("--seeds", type=int, default=3, help="for --accuracy")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.task:
        print(json.dumps(do(arguments.task, arguments)))
        return
    print_steps(arguments.models, arguments.rounds)
    if arguments.accuracy:
        print_accuracy(arguments.images, arguments.epochs, arguments.seeds)


if __name__ == "__main__":
    main()
