"""What a worker holds while it serves: models, database, tokens, metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sqlalchemy as sa

from btfl.core.provenance import Provenance, check_fits
from btfl.errors import InputError
from btfl.monitor import AlarmLevels
from btfl.serve.answers import Answer
from btfl.serve.fleet import Fleet
from btfl.serve.images import Extractor, has_onnxruntime
from btfl.serve.ledger import Ledger
from btfl.serve.logs import log
from btfl.serve.metrics import Metrics
from btfl.serve.model import Model, Step
from btfl.serve.schema import calibrations, writing
from btfl.serve.settings import ServeSettings
from btfl.serve.source import Source, open_source
from btfl.serve.together import Together
from btfl.serve.tokens import TokenBook
from btfl.serve.webhook import Webhook

_THREADS = 16  # that wait for PostgreSQL


class Serving:
    """Everything that answers are made of.

    Parameters
    ----------
    source : ``zoo:NAME`` or a folder
    settings : of the server
    """

    def __init__(self, source: str, settings: ServeSettings) -> None:
        self.settings = settings
        found = open_source(source, settings.recipe, settings.extractor)
        alone = settings.workers == 1
        self.ledger = Ledger(settings.database, settings.durability, settings.history, settings.most_streams, alone)
        self.together = Together(self.ledger) if self.ledger.sqlite else None
        """Takes requests where the database is a file; a database that is elsewhere is waited for by threads."""
        self.models = {model.name: model for model in _models(found, settings, self.ledger.engine)}
        self.extractor = Extractor(found.extractor) if found.extractor is not None and has_onnxruntime() else None
        if self.extractor is not None and self.extractor.provenance is not None:
            for client in found.clients:
                check_fits(Provenance.of_bundle(client.bundle), self.extractor.provenance)
        _check_looks(self.models.values(), self.extractor)
        self.book = TokenBook(self.ledger.engine)
        self.fleet = Fleet(self.ledger.engine, tuple(self.models))
        self.metrics = Metrics(settings.label_models)
        self.webhook = Webhook(settings.webhook, self.metrics.webhook) if settings.webhook else None
        self.threads = ThreadPoolExecutor(_THREADS, "ledger")
        self.stopping = asyncio.Event()
        self.watchers = 0
        """Event streams that are open."""
        self._ready: tuple[float, bool] = (0.0, False)

    def ready(self) -> bool:
        """Return whether the database answers, as of at most half a second ago."""
        asked, answer = self._ready
        if time.monotonic() - asked > 0.5:
            answer = self.ledger.ping()
            self._ready = time.monotonic(), answer
        return answer

    def note(self, model: Model, tenant: str, sequence: str, step: Step, answer: Answer) -> None:
        """Count a request that was answered, and tell of alarms and of memories that met a renewed bundle."""
        self.metrics.step(model.name, step)
        if answer.memory in ("kept", "reset"):
            said = "was renewed: the memory of the stream is " + answer.memory
            log(f"the bundle {said}", model=model.name, sequence=sequence, tenant=tenant)
        for alarm in step.alarms:
            told: dict[str, Any] = {
                "model": model.name,
                "sequence": sequence,
                "tenant": tenant,
                "kind": alarm.kind,
                "begins": alarm.begins,
                "signal": alarm.signal,
                "sample": alarm.sample,
                "value": alarm.value,
                "level": alarm.level,
                "rate": self.settings.rate,
                "version": answer.version,
            }
            log("an alarm begins" if alarm.begins else "an alarm ends", logging.WARNING, **told)
            if self.webhook is not None:
                self.webhook.post({"time": time.time(), **told})

    def close(self) -> None:
        """End what runs beside."""
        self.threads.shutdown(wait=True)
        if self.webhook is not None:
            self.webhook.close()
        self.ledger.close()


def _check_looks(models: Iterable[Model], extractor: Extractor | None) -> None:
    """Refuse a bundle that tells how other images look than those that the extractor takes."""
    for model in models:
        if extractor is not None and model.looks is not None and model.looks.shape != extractor.shape:
            raise InputError(
                f"the bundle of {model.name} tells how images of {model.looks.shape} look, but the extractor takes "
                f"{extractor.shape}: export both from one run"
            )


def _models(source: Source, settings: ServeSettings, engine: sa.Engine) -> list[Model]:
    """Make the models; levels of monitors that had to be found are kept in the database for the next start."""
    with engine.connect() as connection:
        rows = connection.execute(sa.select(calibrations)).all()
    stored: dict[str, list[AlarmLevels]] = {}
    for row in rows:
        stored.setdefault(row.bundle, []).append(AlarmLevels.from_json(json.loads(row.value)))
    made = [Model(one, settings.method, settings.monitor, stored.get(one.sha256, ())) for one in source.clients]
    for model in made:
        if model.found_levels:
            _keep(model, engine)
    if approximate := [model.name for model in made if model.calibration.approximate]:
        log(
            "alarms are approximate: bundles with few features or none, and without levels found on them",
            logging.WARNING,
            models=len(approximate),
            first=approximate[0],
        )
    return made


def _keep(model: Model, engine: sa.Engine) -> None:
    key = calibrations.c.bundle == model.sha256, calibrations.c.method == model.calibration.method
    value = json.dumps(model.calibration.to_json())
    row = {"bundle": model.sha256, "method": model.calibration.method, "value": value}
    try:
        with writing(engine) as connection:
            connection.execute(sa.delete(calibrations).where(*key))
            connection.execute(sa.insert(calibrations), row)
    except sa.exc.IntegrityError:
        log("another worker has kept the same levels", model=model.name)
