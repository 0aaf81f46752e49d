"""Coherent beside its ceiling: the same answers, mixed by someone who is told which samples are external.

Run as ``python benchmarks/known_origin.py RUN...`` on finished runs of ``btfl bench`` (seeds of one federation are
averaged). Every stream is a test stream: nothing may be chosen by what is printed here. With m known, the local answer
is given to the client's own samples and the global one to all others; what a method loses to that, it loses by not
knowing where samples come from. Beside it the mean of e on A and C once 30 samples have gone by.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl import Btfl, ClientBundle, Coherent
from btfl.benchmark.evaluate import Evaluation
from btfl.core.heads import LinearHead, probabilities
from btfl.data.manifest import LETTERS
from btfl.data.streams import Stream
from btfl.methods.fedthe import FedThe
from btfl.methods.knn_per import KnnPer
from btfl.models.forward import extract
from btfl.studies.drift.scenarios import open_run

Floats = NDArray[np.float64]
SETTLED = 30
"""How many samples of a stream go by before e is looked at."""
RECIPE = "fedavg"


class KnownOrigin(Coherent):
    """Coherent, told which samples are external."""

    def tell(self, external: NDArray[np.bool_]) -> None:
        """Tell it the origin of the next batch."""
        self._external = external.astype(np.float64)

    def _decide(self, *seen: Any) -> Any:
        super()._decide(*seen)
        return self._external


def heads_with_known_origin(bundle: ClientBundle, features: Floats, external: NDArray[np.bool_]) -> Floats:
    """Return the trained heads' answers: the personal one's to own samples, FedAvg's to external ones."""
    heads: tuple[LinearHead, LinearHead] = bundle.personal_head, bundle.global_head
    own, everyone = (probabilities(head, features) for head in heads)
    return np.where(external[:, None], everyone, own)


def answers(bundle: ClientBundle, features: Floats, stream: Stream) -> Iterator[tuple[str, Floats, Floats | None]]:
    """Yield what each method answers on one stream, and its e where it has one."""
    for title, method in (
        ("FedTHE on FedAvg", FedThe(bundle)),
        ("kNN-Per", KnnPer(bundle)),
        ("BTFL", Btfl(bundle)),
        ("Coherent 1", Coherent(bundle, preset="first")),
        ("Coherent", Coherent(bundle)),
    ):
        probabilities_ = method.predict(features)
        yield title, probabilities_, method.trace.get("e")
    known = KnownOrigin(bundle)
    known.tell(stream.external)
    yield "Coherent, m known", known.predict(features), None
    yield "both heads, m known", heads_with_known_origin(bundle, features, stream.external), None


Table = dict[str, dict[str, list[float]]]


def look(evaluation: Evaluation) -> tuple[Table, Table]:
    """Return accuracy (%) and settled e by method and stream: a number for each client."""
    accuracy: Table = {}
    settled: Table = {}
    federation = evaluation.federations[RECIPE]
    for number in range(evaluation.seen):
        client, streams = federation.client(number), evaluation.streams(number)
        for name, stream in streams.items():
            features = extract(client.extractor(), stream.values).astype(np.float64)
            for title, found, e in answers(client.bundle, features, stream):
                right = 100 * float((found.argmax(axis=1) == stream.labels).mean())
                accuracy.setdefault(title, {}).setdefault(LETTERS[name], []).append(right)
                if e is not None and len(e) > SETTLED:
                    settled.setdefault(title, {}).setdefault(LETTERS[name], []).append(float(e[SETTLED:].mean()))
    return accuracy, settled


def row(title: str, accuracy: Mapping[str, Floats], settled: Mapping[str, Floats]) -> str:
    """Return one line of the table: the mean over clients, then over runs."""
    cells = [f"{found.mean():.2f}" for found in accuracy.values()]
    cells.append(f"{np.mean([found.mean() for found in accuracy.values()]):.2f}")
    cells += [f"{settled[letter].mean():.3f}" if letter in settled else "–" for letter in "AC"]
    return f"| {title} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--root", type=Path, help="where the data are, if not where the run found them")
    typed = parser.parse_args()
    found = [look(open_run(run, ("fedavg",), typed.root)) for run in typed.runs]
    letters = list(next(iter(found[0][0].values())))
    print("| method | " + " | ".join(letters) + " | average | e on A | e on C |")
    print("| --- |" + " ---: |" * (len(letters) + 3))
    for title in found[0][0]:
        accuracy, settled = (
            {
                letter: np.array([np.mean(tables[kind][title][letter]) for tables in found])
                for letter in letters
                if letter in found[0][kind].get(title, {})
            }
            for kind in (0, 1)
        )
        print(row(title, accuracy, settled))


if __name__ == "__main__":
    main()
