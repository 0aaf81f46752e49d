"""What a federation sends and keeps, in bytes, from the recipe's own arrays; the numbers of docs/scale.md.

Run as ``python benchmarks/scale.py``; prints Markdown. Nothing is trained: a client with made-up images is asked for
its update, its description and its bundle, and the arrays that come back are counted. Where flwr is installed, the
messages themselves are made as ``btfl.flower`` makes them, and counted as Flower's protocol buffers. ``--time`` also
measures what the server does with an upload: check it, and add it to the average.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save

from btfl.core.bundle import ClientBundle
from btfl.core.client import ClientOutcome, Weights
from btfl.data.federated import ClientData
from btfl.data.source import Samples
from btfl.engines.aggregate import RunningSum
from btfl.engines.base import Broadcast, Job, Kept
from btfl.engines.door import check_description, check_update
from btfl.engines.faults import FaultSettings
from btfl.recipes import TrainingSettings
from btfl.recipes.base import Description, Recipe, Update
from btfl.recipes.registry import RECIPES, make_recipe
from btfl.studies.speed.clients import CLASSES, IMAGE_SHAPE, synthetic_images

MODELS = ("cnn", "resnet20", "cct4")
FEW, MANY = 20, 40  # images of the two clients whose bundles are compared
FLOWER_AHEAD = 100  # messages the server has under way at a time, btfl.flower.session

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Exchange:
    """All that one client and the server exchange, and what each of them keeps."""

    recipe: Recipe
    shared: Weights
    update: Update
    description: Description
    outcome: ClientOutcome
    bundle: int
    """Bytes of the bundle on disk, with FEW images to train and as many to validate with."""
    bundle_per_image: float
    """Bytes for each image more, of either kind."""


def exchange(recipe_name: str, model: str) -> Exchange:
    """Do a client's work once, with few images and with more."""
    settings = TrainingSettings.for_model(model, local_epochs=1)
    recipe = make_recipe(recipe_name, settings, IMAGE_SHAPE, CLASSES)
    shared = recipe.initial()
    data = [_client(FEW), _client(MANY)]
    update = recipe.train(1, shared, {}, data[0])
    descriptions = [recipe.describe(update.upload, update.private, one) for one in data]
    outcomes = [
        recipe.conclude(update.upload, description.private, one, description.summary)
        for one, description in zip(data, descriptions, strict=True)
    ]
    few, many = (_bytes_of(outcome.bundle) for outcome in outcomes)
    return Exchange(recipe, shared, update, descriptions[0], outcomes[0], few, (many - few) / (2 * (MANY - FEW)))


def _client(images: int) -> ClientData:
    part = Samples(synthetic_images(images, "scale"), np.arange(images) % CLASSES)
    return ClientData(0, part, part)


def _bytes_of(bundle: ClientBundle) -> int:
    with tempfile.TemporaryDirectory() as folder:
        bundle.save(folder)
        return sum(path.stat().st_size for path in Path(folder).iterdir())


def raw(arrays: Arrays) -> int:
    """Count the bytes of the numbers alone."""
    return sum(array.nbytes for array in arrays.values())


def stored(arrays: Arrays) -> int:
    """Count the bytes as safetensors."""
    return len(save({name: np.asarray(array, order="C") for name, array in arrays.items()}))


def on_flower(found: Exchange) -> dict[str, int]:
    """Count the bytes of every message as Flower's protocol buffers; nothing if flwr is not here."""
    if importlib.util.find_spec("flwr") is None:
        return {}
    from flwr.common.serde import recorddict_to_proto

    from btfl.flower.messages import pack_broadcast, pack_job, pack_result

    run = 16 * "0"  # the name of a run is that long
    sums = found.description.summary
    messages = {
        "round, down": pack_job(Job("train", 0, 1, {}), run, pack_broadcast(Broadcast(found.shared))),
        "round, up": pack_result(found.update),
        "describe, down": pack_job(Job("describe", 0, 1, {}), run, pack_broadcast(Broadcast(found.shared))),
        "describe, up": pack_result(found.description),
        "conclude, down": pack_job(Job("conclude", 0, 1, {}), run, pack_broadcast(Broadcast(found.shared, sums))),
        "conclude, up": pack_result(Kept()),
    }
    return {name: int(recorddict_to_proto(message).ByteSize()) for name, message in messages.items()}


def print_model(recipe: str, model: str, found: Exchange) -> None:
    """Print what is sent and kept with one model."""
    shared, sums = found.shared, found.description.summary.arrays
    both: Arrays = {**{f"shared.{name}": array for name, array in shared.items()}, **sums}
    exchanged: dict[str, Arrays] = {
        "round, down": shared,
        "round, up": found.update.upload,
        "describe, down": shared,
        "describe, up": sums,
        "conclude, down": both,
        "conclude, up": {},
    }
    messages = on_flower(found)
    print(f"\n### {recipe}, {model}: {sum(array.size for array in shared.values()):,} numbers\n")
    print("| sent | arrays | bytes of numbers | as safetensors | as a Flower message |")
    print("| --- | --- | --- | --- | --- |")
    for name, arrays in exchanged.items():
        flower = f"{messages[name]:,}" if messages else "flwr is not installed"
        print(f"| {name} | {len(arrays)} | {raw(arrays):,} | {stored(arrays) if arrays else 0:,} | {flower} |")
    networks = sum(stored(network) for network in found.outcome.networks.values())
    print("\n| kept | bytes |")
    print("| --- | --- |")
    print(f"| by the client, from round to round: private state as safetensors | {stored(found.update.private):,} |")
    print(f"| by the client, at the end: bundle with {FEW} + {FEW} images of train and validation | {found.bundle:,} |")
    print(f"| ... and for each image more | {found.bundle_per_image:.1f} |")
    print(f"| by the client, at the end: networks of its own ({', '.join(found.outcome.networks)}) | {networks:,} |")
    print(f"| by the server: shared weights, float32 | {raw(shared):,} |")
    print(f"| by the server: the running sum of a round, float64 | {2 * raw(found.update.upload):,} |")
    print(f"| by the server: the running sum of the end, float64 | {raw(sums):,} |")
    print(f"| by the server on Flower: answers under way, at most {FLOWER_AHEAD} | {FLOWER_AHEAD * raw(shared):,} |")


def print_clients(found: Mapping[str, Exchange], share: float, bandwidth: float) -> None:
    """Print what all clients together send, for a hundred to a million of them, and how long a network takes for it."""
    rows: dict[int, list[tuple[float, float]]] = {10**power: [] for power in range(2, 7)}
    for clients, cells in rows.items():
        for one in found.values():
            up, down, sums = raw(one.update.upload), raw(one.shared), raw(one.description.summary.arrays)
            end = down + sums + down + sums  # describe down and up, conclude down
            cells.append((max(round(share * clients), 1) * (down + up) / 1e9, clients * end / 1e9))
    seconds = 8 / bandwidth
    for title, factor, digits in (
        ("gigabytes of numbers through the server", 1.0, 3),
        (f"derived, gigabytes x 8 / {bandwidth:g}: seconds at {bandwidth:g} Gbit/s", seconds, 1),
    ):
        print(f"\n### All clients together, {100 * share:g} % of them in a round: {title}\n")
        print("| clients | " + " | ".join(f"{model}, a round | {model}, the end" for model in found) + " |")
        print("| --- |" + " --- | --- |" * len(found))
        for clients, cells in rows.items():
            numbers = (f"{factor * number:,.{digits}f}" for cell in cells for number in cell)
            print(f"| {clients:,} | {' | '.join(numbers)} |")


def print_times(found: Mapping[str, Exchange], repeats: int) -> None:
    """Print how long the server takes over one upload."""
    print("\n### What the server does with one upload: check it and add it (median)\n")
    print("| model | ms an upload | ms a description |")
    print("| --- | --- | --- |")
    for model, one in found.items():
        shapes = {name: array.shape for name, array in one.shared.items()}
        average, total = RunningSum(), one.description.summary
        times: dict[str, list[float]] = {"upload": [], "description": []}
        for _ in range(repeats):
            begun = time.perf_counter()
            check_update(one.update, shapes, FaultSettings())
            average.add(one.update.upload, one.update.samples)
            added = time.perf_counter()
            check_description(one.description, one.recipe, FaultSettings())
            total = total + one.description.summary
            times["upload"].append(1000 * (added - begun))
            times["description"].append(1000 * (time.perf_counter() - added))
        print(f"| {model} | {np.median(times['upload']):.3f} | {np.median(times['description']):.3f} |")


def main() -> None:
    """Count, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--recipe", choices=list(RECIPES), default="fedavg")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--share", type=float, default=0.01, help="of the clients that train in a round")
    parser.add_argument("--bandwidth", type=float, default=1.0, help="of the server's network, in Gbit/s")
    parser.add_argument("--time", action="store_true", help="also time what the server does with an upload")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {model: exchange(arguments.recipe, model) for model in arguments.models}
    print(f"images of {'x'.join(map(str, IMAGE_SHAPE))}, {CLASSES} classes")
    for model, one in found.items():
        print_model(arguments.recipe, model, one)
    print_clients(found, arguments.share, arguments.bandwidth)
    if arguments.time:
        print_times(found, repeats=200)


if __name__ == "__main__":
    main()
