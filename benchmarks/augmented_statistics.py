"""BTFL as the authors' program measures its clients: mean entropies and likelihoods of augmented training images.

Run as ``python benchmarks/augmented_statistics.py RUN`` on a finished run of ``btfl bench`` with images. In the
published program a client's loader crops and flips its images while statistics are taken, too; here they are taken as
they are. Each client's features, its own likelihood, everyone's and both mean entropies are taken again from one
augmented copy of every training image (of the last round's split, where it is redrawn); heads and network are those of
the run. Printed are both, as accuracy in % on each stream, the mean over clients. Every stream is a test stream:
nothing may be chosen by what is printed here.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from btfl import Btfl, ClientBundle
from btfl.benchmark.evaluate import Evaluation
from btfl.core.summary import Summary
from btfl.data.manifest import LETTERS
from btfl.data.partition import make_partition
from btfl.methods.base import Method
from btfl.methods.fedthe import FedThe
from btfl.models.forward import extract
from btfl.pixels.images import crop_and_flip
from btfl.randomness import generator
from btfl.studies.drift.scenarios import open_run

RECIPE = "fedavg"
Table = dict[str, dict[str, list[float]]]


def methods(bundle: ClientBundle) -> Mapping[str, Method]:
    """Return the methods that read these statistics."""
    return {
        "BTFL": Btfl(bundle),
        "BTFL (release)": Btfl(bundle, preset="release"),
        "FedTHE on FedAvg": FedThe(bundle),
    }


def augmented(evaluation: Evaluation) -> list[ClientBundle]:
    """Return every client's bundle with statistics of augmented training images."""
    federation, pool = evaluation.federations[RECIPE], evaluation.source.pool
    partition = make_partition(evaluation.source, evaluation.manifest.partition, evaluation.manifest.seed)
    network = federation.client(0).extractor()  # everyone's: heads alone differ
    known = []
    for number in range(evaluation.seen):
        train = pool.take(partition.part_at(number, int(federation.spec["settings"]["rounds"])).train)
        values = crop_and_flip(train.values, generator(evaluation.manifest.seed, "augmented statistics", number))
        known.append((extract(network, values), train.labels))
    summaries = [Summary.of(*part, len(evaluation.source.classes)) for part in known]
    everyone = Summary.total(summaries)
    before = [federation.client(number).bundle for number in range(evaluation.seen)]
    return [
        ClientBundle.of(old.global_head, old.personal_head, own, everyone, features=features, labels=labels)
        for old, own, (features, labels) in zip(before, summaries, known, strict=True)
    ]


def look(evaluation: Evaluation) -> Table:
    """Return accuracy in % by method and stream: a number for each client."""
    found: Table = {}
    federation = evaluation.federations[RECIPE]
    for number, bundle in enumerate(augmented(evaluation)):
        client, streams = federation.client(number), evaluation.streams(number)
        for name, stream in streams.items():
            features = extract(client.extractor(), stream.values).astype(np.float64)
            batches = np.array_split(features, range(evaluation.test_batch, len(features), evaluation.test_batch))
            for kind, measured in (("as they are", client.bundle), ("augmented", bundle)):
                for title, method in methods(measured).items():
                    answers = np.concatenate([method.predict(batch) for batch in batches])
                    right = answers.argmax(axis=1) == stream.labels
                    row = found.setdefault(f"{title}, {kind}", {})
                    row.setdefault(LETTERS[name], []).append(100 * float(right.mean()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--root", type=Path, help="where the data are, if not where the run found them")
    typed = parser.parse_args()
    table = look(open_run(typed.run, (RECIPE,), typed.root))
    letters = list(next(iter(table.values())))
    print("| statistics of training images | " + " | ".join(letters) + " | average |")
    print("| --- |" + " ---: |" * (len(letters) + 1))
    for title, row in sorted(table.items()):
        means = [float(np.mean(row[letter])) for letter in letters]
        print(f"| {title} | " + " | ".join(f"{mean:.2f}" for mean in (*means, float(np.mean(means)))) + " |")


if __name__ == "__main__":
    main()
