"""Strangeness beside six other scores: frames of failed cameras, and images of other datasets.

Run as ``python benchmarks/strangeness.py RUN --other letters=FILE.npz:x --other office31=FILE.tar`` on a finished run
of ``btfl bench`` with images. For every client the score of its own test samples (stream A) is compared with that of
each kind of frame: the area under the ROC curve, the share of own samples that are taken for strange where 95 % of the
frames are found, and the share that is found at 1 % false alarms on own test samples. Nothing is chosen here. All but
``looks`` see features; ``either`` is the larger of strangeness and looks, each in units of its level at 0.5 %. Below
the tables: what looks find at the level that a device has, made of own training and validation samples alone.

With ``--told`` something else is printed: what a classifier finds that was told the kind, as a bound. A logistic
regression and boosted trees are fitted to half of the frames and half of all clients' own test samples, and judged on
the other halves in the same way, on features, on the statistics that ``Looks`` sees, and on both.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from btfl import ClientBundle
from btfl.benchmark.evaluate import Evaluation
from btfl.core.generative import everyones_sums, moments, shrunk
from btfl.core.softmax import log_softmax
from btfl.data.partition import make_partition
from btfl.data.streams import STREAMS, render
from btfl.methods.coherent import Strangeness
from btfl.models.forward import extract
from btfl.monitor import Looks
from btfl.monitor.statistics import statistics_of
from btfl.pixels.types import Images
from btfl.randomness import generator
from btfl.studies.drift.scenarios import open_run

Floats = NDArray[np.float64]
Score = Callable[[Floats], Floats]
OWN, EXTERNAL = STREAMS[0], STREAMS[2]
NEIGHBOURS, FALSE_ALARMS, FOUND = 10, 0.01, 0.95
RIDGE = 1e-6


def distances(bundle: ClientBundle) -> tuple[Score, Score]:
    """Return the squared Mahalanobis distance to the nearest class mean, and that to the mean of all."""
    sums = everyones_sums(bundle)
    means, within, mean_square = moments(sums)
    mean = sums.sums.sum(axis=0) / sums.counts.sum()
    total = sums.scatter / sums.counts.sum() - np.outer(mean, mean)
    class_root, root = (np.linalg.inv(np.linalg.cholesky(shrunk(c, RIDGE, mean_square))).T for c in (within, total))
    white = means[sums.counts > 0] @ class_root

    def nearest(z: Floats) -> Floats:
        x = z @ class_root
        return np.asarray((x**2).sum(axis=1) + ((white**2).sum(axis=1) - 2 * x @ white.T).min(axis=1))

    def to_all(z: Floats) -> Floats:
        return np.asarray((((z - mean) @ root) ** 2).sum(axis=1))

    return nearest, to_all


def neighbours(bundle: ClientBundle) -> Score:
    """Return the distance to the 10th nearest of the client's training features, all of length one (Sun et al.)."""
    train = bundle.statistic("train_features")
    train = train / np.maximum(np.linalg.norm(train, axis=1, keepdims=True), 1e-12)
    place = min(NEIGHBOURS, len(train)) - 1

    def score(z: Floats) -> Floats:
        unit = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
        return np.asarray(np.partition(2 - 2 * unit @ train.T, place, axis=1)[:, place])

    return score


def virtual_logit(bundle: ClientBundle) -> Score:
    """Return ViM (Wang et al., 2022): what lies outside the principal space as one more logit, less the energy."""
    head, sums = bundle.global_head, everyones_sums(bundle)
    bias = np.zeros(bundle.classes) if head.bias is None else head.bias
    origin = -np.linalg.pinv(head.weight) @ bias
    mean, n = sums.sums.sum(axis=0) / sums.counts.sum(), sums.counts.sum()
    moved = sums.scatter / n - np.outer(origin, mean) - np.outer(mean, origin) + np.outer(origin, origin)
    _, directions = np.linalg.eigh((moved + moved.T) / 2)
    outside = directions[:, : bundle.dimensions - min(bundle.dimensions // 2, 512)]
    train = bundle.statistic("train_features")

    def residual(z: Floats) -> Floats:
        return np.asarray(np.linalg.norm((z - origin) @ outside, axis=1))

    scale = head.logits(train).max(axis=1).mean() / residual(train).mean()
    return lambda z: np.asarray(scale * residual(z) - np.logaddexp.reduce(head.logits(z), axis=1))


def scores(bundle: ClientBundle) -> Mapping[str, Score]:
    """Return every score of a client; larger is stranger."""
    nearest, to_all = distances(bundle)
    logits = bundle.global_head.logits
    return {
        "maximum softmax": lambda z: 1 - np.exp(log_softmax(logits(z)).max(axis=1)),
        "energy": lambda z: -np.logaddexp.reduce(logits(z), axis=1),
        "Mahalanobis": nearest,
        "relative Mahalanobis": lambda z: nearest(z) - to_all(z),
        "kNN": neighbours(bundle),
        "ViM": virtual_logit(bundle),
        "strangeness (ours)": Strangeness(bundle).of,
    }


def other_images(place: str, size: int, most: int) -> Images:
    """Return some images of an npz (FILE.npz:KEY) or of a tar, as colour images of this size."""
    file, _, key = place.partition(":")
    rng = generator(0, "other images", Path(file).name, key)  # the same images wherever the file lies
    if file.endswith(".npz"):
        stored = np.load(file, allow_pickle=False)[key or "x"]
        pictures = [Image.fromarray(stored[row]) for row in rng.permutation(len(stored))[:most]]
    else:
        with tarfile.open(file) as tar:
            names = sorted(member.name for member in tar if member.name.endswith((".jpg", ".png")))
            chosen = [tar.extractfile(names[row]) for row in rng.permutation(len(names))[:most]]
            pictures = [Image.open(io.BytesIO(one.read())) for one in chosen if one is not None]
    return np.stack([np.asarray(picture.convert("RGB").resize((size, size))) for picture in pictures])


def frames(size: int) -> dict[str, Images]:
    """Return frames of cameras that have failed."""
    rng, shape = generator(0, "frames"), (size, size, 3)
    colours = rng.integers(0, 256, size=(50, 1, 1, 3)).astype(np.uint8)
    return {
        "black": np.zeros((1, *shape), np.uint8),
        "white": np.full((1, *shape), 255, np.uint8),
        "constant": np.ascontiguousarray(np.broadcast_to(colours, (50, *shape))),
        "noise": rng.integers(0, 256, size=(50, *shape)).astype(np.uint8),
    }


def judged(own: Floats, strange: Floats) -> tuple[float, float, float]:
    """Return the area under the ROC curve, own samples taken for strange at 95 % found, and found at 1 % of them."""
    larger = (strange[:, None] > own).mean() + 0.5 * (strange[:, None] == own).mean()
    level = np.quantile(strange, 1 - FOUND)
    return float(larger), float((own >= level).mean()), float((strange > np.quantile(own, 1 - FALSE_ALARMS)).mean())


@dataclass(frozen=True, eq=False)
class Seen:
    """Images as they came in, and their features."""

    images: Images
    features: Floats


@dataclass(frozen=True, eq=False)
class Watched:
    """A client, its own test images, and each kind of frames."""

    bundle: ClientBundle
    looks: Looks
    own: Seen
    kinds: Mapping[str, Seen]


def of_clients(evaluation: Evaluation, others: Mapping[str, str], most: int, clients: int) -> Iterator[Watched]:
    """Give each client with what it sees."""
    federation = evaluation.federations["fedavg"]
    network = federation.client(0).extractor()  # everyone's: heads alone differ
    size = evaluation.source.pool.values.shape[1]

    def seen(images: Images) -> Seen:
        values = images if evaluation.embedder is None else evaluation.embedder.scaled_features(images)
        return Seen(images, extract(network, values).astype(np.float64))

    kinds = frames(size) | {name: other_images(place, size, most) for name, place in others.items()}
    shared = {name: seen(images) for name, images in kinds.items()}
    pool = evaluation.source.pool
    partition = make_partition(evaluation.source, evaluation.manifest.partition, evaluation.manifest.seed)
    for number in range(min(clients, evaluation.seen)):
        streams = render(evaluation.source, evaluation.manifest, number)
        own, part = streams[OWN].values[:most], partition.parts[number]
        more = {name: change(own) for name, change in CHANGES.items()}
        more["other clients"] = streams[EXTERNAL].values[:most]
        yield Watched(
            federation.outcome(number).bundle,
            Looks.of(pool.take(part.train).values, pool.take(part.validation).values),
            seen(own),
            shared | {name: seen(images) for name, images in more.items()},
        )


def inverted(images: Images) -> Images:
    """Return images as their negatives."""
    return 255 - images


def smeared(images: Images) -> Images:
    """Return images as a lens with grease on it would show them: blurred by a sixteenth of their side."""
    blur = ImageFilter.GaussianBlur(images.shape[1] / 16)
    return np.stack([np.asarray(Image.fromarray(image).filter(blur)) for image in images])


CHANGES: Mapping[str, Callable[[Images], Images]] = {"inverted": inverted, "smeared": smeared}


def _of_features(score: Score) -> Callable[[Seen], Floats]:
    return lambda seen: score(seen.features)


def all_scores(client: Watched) -> Mapping[str, Callable[[Seen], Floats]]:
    """Return every score of a client, of features or of images; larger is stranger."""
    found = {name: _of_features(score) for name, score in scores(client.bundle).items()}
    strangeness, looks = Strangeness(client.bundle), client.looks
    levels = strangeness.level(FALSE_ALARMS / 2), looks.level(FALSE_ALARMS / 2)

    def either(seen: Seen) -> Floats:
        return np.maximum(strangeness.of(seen.features) / levels[0], looks.strangeness(seen.images) / levels[1])

    return {**found, "looks (ours)": lambda seen: looks.strangeness(seen.images), "either (ours)": either}


def look(
    evaluation: Evaluation, others: Mapping[str, str], most: int, clients: int
) -> tuple[dict[str, dict[str, Floats]], dict[str, float]]:
    """Return what ``judged`` says by score and kind, the mean over clients; and what looks find at a device's level."""
    found: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    on_device: dict[str, list[float]] = {}
    for client in of_clients(evaluation, others, most, clients):
        for name, score in all_scores(client).items():
            own = score(client.own)
            for kind, seen in client.kinds.items():
                found.setdefault(name, {}).setdefault(kind, []).append(judged(own, score(seen)))
        for kind, seen in {"own test samples": client.own, **client.kinds}.items():
            above = client.looks.strangeness(seen.images) > client.looks.level(FALSE_ALARMS)
            on_device.setdefault(kind, []).append(100 * float(above.mean()))
    means = {name: {kind: np.mean(rows, axis=0) for kind, rows in of.items()} for name, of in found.items()}
    return means, {kind: float(np.mean(shares)) for kind, shares in on_device.items()}


VIEWS: Mapping[str, Callable[[Seen], Floats]] = {
    "features": lambda seen: seen.features,
    "looks": lambda seen: statistics_of(seen.images, 0.5),
    "both": lambda seen: np.concatenate([seen.features, statistics_of(seen.images, 0.5)], axis=1),
}


def told(clients: Sequence[Watched]) -> dict[str, dict[str, float]]:
    """Return by kind and view: what the better of two classifiers finds at 1 % false alarms that were told the kind."""
    found: dict[str, dict[str, float]] = {}
    for kind in clients[0].kinds:
        own_kind = clients[0].kinds[kind] is not clients[-1].kinds[kind]  # else the same frames for all clients
        seen = [client.kinds[kind] for client in (clients if own_kind else clients[:1])]
        for view, of in VIEWS.items():
            own = np.concatenate([of(client.own) for client in clients])
            strange = np.concatenate([of(each) for each in seen])
            found.setdefault(kind, {})[view] = 100 * _told(own, strange, alike=len(own) == len(strange))
    return found


def _told(own: Floats, strange: Floats, *, alike: bool) -> float:
    """Return the share that is found; ``alike``: an image and its changed copy stay on one side."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = generator(0, "told")
    order = rng.permutation(len(own))
    among = order if alike else rng.permutation(max(len(strange), 2)) % len(strange)  # one frame is on both sides
    samples = np.concatenate([own[order[::2]], strange[among[::2]]])
    labels = np.repeat([0, 1], [len(order[::2]), len(among[::2])])
    weights = np.where(labels == 1, len(order) / len(among), 1.0)
    line = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
    line.fit(samples, labels, logisticregression__sample_weight=weights)
    trees = HistGradientBoostingClassifier(max_iter=150, random_state=0).fit(samples, labels, sample_weight=weights)
    return max(
        judged(model.decision_function(own[order[1::2]]), model.decision_function(strange[among[1::2]]))[2]
        for model in (line, trees)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--root", type=Path, help="where the data are, if not where the run found them")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=FILE", help="images of another dataset")
    parser.add_argument("--most", type=int, default=200, help="images of each kind")
    parser.add_argument("--clients", type=int, default=1_000_000, help="how many clients are looked at")
    parser.add_argument("--told", action="store_true", help="print what classifiers find that were told the kind")
    typed = parser.parse_args()
    others = dict(text.split("=", 1) for text in typed.other)
    evaluation = open_run(typed.run, ("fedavg",), typed.root)
    if typed.told:
        bounds = told(list(of_clients(evaluation, others, typed.most, typed.clients)))
        print("| told the kind: found in % at 1 % | " + " | ".join(VIEWS) + " |\n| --- |" + " ---: |" * len(VIEWS))
        for kind, row in bounds.items():
            print(f"| {kind} | " + " | ".join(f"{row[view]:.1f}" for view in VIEWS) + " |")
        return
    table, on_device = look(evaluation, others, typed.most, typed.clients)
    kinds = list(next(iter(table.values())))
    titles = ("area under the ROC curve", "own samples in % where 95 % are found", "found in % at 1 % false alarms")
    for place, (title, form, times) in enumerate(zip(titles, (".2f", ".1f", ".1f"), (1, 100, 100), strict=True)):
        print(f"\n| {title} | " + " | ".join(table) + " |\n| --- |" + " ---: |" * len(table))
        for kind in kinds:
            print(f"| {kind} | " + " | ".join(format(times * row[kind][place], form) for row in table.values()) + " |")
    print("\n| looks above a device's level of 1 % | in % |\n| --- | ---: |")
    for kind, share in on_device.items():
        print(f"| {kind} | {share:.1f} |")


if __name__ == "__main__":
    main()
