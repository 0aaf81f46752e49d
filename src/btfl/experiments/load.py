"""From an experiment to each client's data: the same wherever it is asked for, on a server or on a client."""

from __future__ import annotations

from pathlib import Path

from btfl.data.catalogue import load_source
from btfl.data.federated import FederatedData
from btfl.data.partition import make_partition
from btfl.data.scaling import standardised
from btfl.data.subset import take
from btfl.errors import InputError
from btfl.experiments.experiment import Experiment


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
    return FederatedData(standardised(source, partition) if experiment.standardise else source, partition)
