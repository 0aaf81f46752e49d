"""The whole loop on handwritten digits, in under a minute on a CPU: `python examples/whole_loop.py [FOLDER]`.

data -> partition -> streams
            \\-> engine(recipe) -> bundles -> method x stream -> results -> report
"""

import sys
from pathlib import Path

from rich.console import Console

from btfl.benchmark.evaluate import run_stream
from btfl.benchmark.record import constants, describe_run
from btfl.data.streams import make_manifest, render
from btfl.engines import LocalEngine, train_federation
from btfl.experiments.experiment import make_experiment
from btfl.experiments.load import load_data
from btfl.methods.registry import find_method
from btfl.models.forward import extract
from btfl.recipes.registry import make_recipe
from btfl.report.build import write_report
from btfl.report.terminal import terminal_table
from btfl.runs.layout import RunFiles
from btfl.runs.results import Predictions, client_rows, sample_rows, write_table
from btfl.storage import sealed, write_json

files = RunFiles(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/whole-loop"))
METHODS = ("fedavg", "personal", "btfl", "coherent")
experiment = make_experiment({"clients": 6, "model": "mlp", "training": {"rounds": 6}, "methods": METHODS})

# Data: a dataset divided among clients, and five test streams for each of them.
data = load_data(experiment)
streams = make_manifest(data.source, data.partition, experiment.stream_settings(), experiment.stream_seed)

# Training: a recipe says what is trained, an engine where. Every client ends with a bundle.
recipe = make_recipe("fedavg", experiment.training_settings(), data.source.sample_shape, len(data.source.classes))
federation = train_federation(recipe, data, LocalEngine(), folder=files.training("fedavg").folder)

# Test time: every method on every stream of every client; `run_stream` calls `predict` batch by batch.
methods = tuple(find_method(name) for name in experiment.methods)
predictions, batch = list[Predictions](), experiment.test_batch
for number in range(len(data)):
    client = federation.client(number)
    extractor = client.extractor()
    for stream in render(data.source, streams, number).values():
        features = extract(extractor, stream.values)
        predictions.extend(
            run_stream(method, method.build(client), number, stream, features, batch) for method in methods
        )

# Results: tables that pandas reads, and a record of all settings. The report is made from them.
record = describe_run(experiment, data.source, streams, methods)
write_table(client_rows(predictions, batch, constants(record)), files.results)
write_table(sample_rows(predictions, {"run": record["run"], "seed": experiment.seed}), files.samples)
write_json(files.record, sealed(record))
report = write_report([files.folder], files.folder)
Console().print(terminal_table(report.report.parts[0].tables[0]))
print(f"Uploaded, in total: {federation.total}\nKept by the last client: {client.bundle}\nReport: {report.page}")
