"""From an experiment to each client's data: the same wherever it is asked for, on a server or on a client."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from btfl.data.catalogue import load_source
from btfl.data.federated import FederatedData
from btfl.data.fetching.cache import Progress, silent
from btfl.data.partition import make_partition
from btfl.data.scaling import scaling_of, standardised
from btfl.data.subset import take
from btfl.errors import InputError
from btfl.experiments.experiment import Experiment

if TYPE_CHECKING:
    from btfl.backbones.embed import Embedder, Spread


def load_data(experiment: Experiment, root: Path | None = None) -> FederatedData:
    """Load the dataset, from ``root`` if this machine has it elsewhere, and deal it out to the clients."""
    options = experiment.dataset_options
    if taken := {"name", "root", "shift"} & set(options):
        raise InputError(f"dataset_options: {', '.join(sorted(taken))} is no option of a dataset; see `btfl data list`")
    try:
        source = load_source(experiment.dataset, root=root or experiment.root, shift=experiment.shift, **options)
    except TypeError as error:  # an option of another type than the loader can work with
        if not options:
            raise
        raise InputError(f"the dataset {experiment.dataset} cannot be loaded with {options}: {error}") from error
    if experiment.samples is not None:
        source = take(source, experiment.samples)
    partition = make_partition(source, experiment.partition_settings(), experiment.seed)
    scaled = experiment.standardise and experiment.backbone is None  # a backbone gets samples as they are
    return FederatedData(standardised(source, partition) if scaled else source, partition)


MODELS_FOR = {"signals": "cnn1d", "vectors": "mlp"}
"""The model that is trained on samples of a kind, where none is named; images have the experiment's default."""


def with_model(experiment: Experiment, kind: str) -> Experiment:
    """Return an experiment that names no model with the one for its kind of samples."""
    if "model" in experiment.model_fields_set or kind not in MODELS_FOR:
        return experiment
    return experiment.model_copy(update={"model": MODELS_FOR[kind]})


def embedded(
    experiment: Experiment, data: FederatedData, spread: Spread | None = None, progress: Progress = silent
) -> tuple[FederatedData, Embedder | None]:
    """Return the same data with the pool's features to train on, and what turns further samples into features.

    Without a backbone the data stay as they are, and nothing is returned with them. Features are computed once and kept
    on disk. They are scaled by mean and deviation of all clients' training parts, as vectors are, unless the experiment
    says otherwise.

    Parameters
    ----------
    experiment, data : what is run, and what ``load_data`` returned for it
    spread : where the work is done; None: in this process
    progress : called as features are computed
    """
    if experiment.backbone is None:
        return data, None
    from btfl.backbones.embed import Embedder, here  # torch is needed from here on, and not before
    from btfl.backbones.load import load_backbone
    from btfl.recipes.network import DISTORTION

    embedder = Embedder(load_backbone(experiment.backbone, data.source.sample_shape, experiment.backbone_size))
    samples = embedder.samples(data.source.pool, DISTORTION, spread=spread or here, progress=progress)
    if experiment.standardise:
        embedder.scaling = scaling_of(replace(data.source, pool=samples, shifted=None), data.partition)
        samples = embedder.scaling.of(samples)
    told = {**embedder.backbone.spec, "sample_shape": list(data.source.sample_shape)}
    if embedder.scaling is not None:
        told["scaling"] = embedder.scaling.as_dict()
    return replace(data, embedded=samples, backbone=told), embedder


def load_for_training(experiment: Experiment, root: Path | None = None) -> FederatedData:
    """Load what clients train on: the dataset, or its features where the experiment has a backbone."""
    return embedded(experiment, load_data(experiment, root))[0]
