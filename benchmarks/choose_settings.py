"""How settings that a paper leaves open were chosen: for all methods in the same way, on validation parts alone.

Run as ``python benchmarks/choose_settings.py RUN... --method "adapt[scale=3]" --method "adapt[scale=10]"`` with
folders of finished runs (``btfl bench``) and any number of methods that take features. The streams are those of
``coherent_settings.py``: the benchmark's five kinds, and one of turns, made of validation samples and of shifts that
no test stream has. It gives mean accuracy and log loss over clients and streams; docs/protocol.md says how they
decide.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from coherent_settings import Federation, judged, load

from btfl import ClientBundle, Method
from btfl.methods.base import BundleOnly
from btfl.methods.registry import Variant, find_method


def built(variant: Variant, bundle: ClientBundle) -> Method:
    """Return a method for a client of whom nothing but the bundle is known."""
    return variant.build(BundleOnly(bundle))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--method", action="append", required=True, help="a method with settings; may be repeated")
    typed = parser.parse_args()
    variants = [find_method(name) for name in typed.method]
    federations: dict[tuple[Path, str], Federation] = {}
    print("| method | mean: accuracy, log loss | " + " | ".join(run.name for run in typed.runs) + " |")
    print("| --- |" + " --- |" * (len(typed.runs) + 1))
    for variant in variants:
        results = []
        for run in typed.runs:
            key = run, variant.trained_with
            if key not in federations:
                federations[key] = load(*key)
            results.append(judged(federations[key], partial(built, variant)))
        cells = [f"{a:.2f}, {loss:.4f}" for a, loss in [np.mean(results, axis=0), *results]]
        print(f"| {variant.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
