"""The client's side on Flower: the recipe's own functions, with a private state that never leaves the client.

Node config: ``partition-id`` (which client this is), ``folder`` (where it keeps its state and its bundle) and ``root``
(where its copy of the dataset is), the last two if they are not as the run config has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from btfl.core.calibration import Calibration
from btfl.data.federated import FederatedData
from btfl.engines.base import Failure, Job, Kept, perform
from btfl.engines.door import check_description, check_update
from btfl.engines.provenance import run_identity, run_spec
from btfl.errors import BtflError, InputError
from btfl.flower.messages import TYPES, pack_result, unpack_job
from btfl.flower.secure import is_masked, masked_answer, offer_keys, reveal_shares, share_secrets
from btfl.flower.state import PrivateState
from btfl.flower.task import FlowerTask, TaskReader
from btfl.models.threads import one_thread
from btfl.recipes.base import Description, Recipe, Update
from btfl.runs.layout import TrainingFiles, client_name
from btfl.runs.trained import save_outcome


def make_client_app(task: FlowerTask | TaskReader = FlowerTask.from_run_config) -> ClientApp:
    """Make the ClientApp for a task, or for what is read from the run config."""
    app = ClientApp()
    app.query("introduce")(introduce)
    app.train()(partial(answer, task))
    app.query("secure_keys")(partial(_secure, lambda own, message, context: offer_keys(message, context)))
    app.query("secure_shares")(partial(_secure, share_secrets))
    app.query("secure_reveal")(partial(_secure, reveal_shares))
    app.query("describe")(partial(answer, task))
    app.query("calibrate")(partial(answer, task))
    app.query("conclude")(partial(answer, task))
    return app


def introduce(message: Message, context: Context) -> Message:
    """Tell the server which client this node is."""
    return Message(RecordDict({"facts": ConfigRecord({"client": _client(context)})}), reply_to=message)


def answer(task: FlowerTask | TaskReader, message: Message, context: Context) -> Message:
    """Do a job; what goes wrong is told in a sentence."""
    try:
        with one_thread():
            fixed = task if isinstance(task, FlowerTask) else task(context.run_config)
            recipe, data = fixed.make(_root(context))
            if recipe.settings.secure and not is_masked(message) and message.metadata.message_type != TYPES["conclude"]:
                raise InputError("this client sends masked numbers alone, and the server has asked for others")
            result = _work(fixed, message, context)
            if is_masked(message) and not isinstance(result, Kept):
                broadcast, job, _ = unpack_job(message.content)
                shared = broadcast.shared
                content = masked_answer(_client(context), message, context, result, recipe, data, shared, job)
            else:
                content = pack_result(result)
    except BtflError as error:
        content = pack_result(Failure(str(error)))
    return Message(content, reply_to=message)


def _secure(step: Callable[[int, Message, Context], RecordDict], message: Message, context: Context) -> Message:
    """Do one step of a secure sum; what goes wrong is told in a sentence."""
    try:
        content = step(_client(context), message, context)
    except BtflError as error:
        content = pack_result(Failure(str(error)))
    except Exception as error:  # whatever another's keys and shares may cause
        content = pack_result(Failure(f"a secure sum cannot go on: {type(error).__name__}"))
    return Message(content, reply_to=message)


def _root(context: Context) -> str | None:
    root = context.node_config.get("root")
    return None if root is None else str(root)


def run_name(recipe: Recipe, data: FederatedData) -> str:
    """Name a run by what determines its outcome, so that no client works on another by mistake.

    The number of rounds is no part of it: a run that goes on finds the private states it left.
    """
    return run_identity(run_spec(recipe, data))


def _work(task: FlowerTask, message: Message, context: Context) -> Update | Description | Calibration | Kept:
    recipe, data = task.make(_root(context))
    broadcast, job, run = unpack_job(message.content)
    if job.client != _client(context):
        raise InputError(f"this is client {_client(context)}, not {job.client}")
    if run != run_name(recipe, data):
        raise InputError("the server works on another experiment, or on other data, than this client")
    folder = client_folder(task, context)
    state, step = PrivateState(context, folder, run), _step(job)
    job = replace(job, private=state.before(step, job.since))
    result = perform(recipe, data, broadcast, job)
    if isinstance(result, Update):
        # Checked here as well as by the server, so that a state gone bad is not kept.
        check_update(result, {name: array.shape for name, array in result.upload.items()}, task.faults)
        if result.private:
            state.keep(step, result.private)
        return result
    if isinstance(result, Description):
        check_description(result, recipe, task.faults)
        state.keep(step, result.private)
        return result
    if isinstance(result, Calibration):
        return result
    assert not isinstance(result, Kept)
    save_outcome(folder, result)
    return Kept()


def client_folder(task: FlowerTask, context: Context) -> Path:
    """Return the folder where this client keeps its state and, in the end, its bundle."""
    own = context.node_config.get("folder")
    return TrainingFiles(Path(task.folder)).clients / client_name(_client(context)) if own is None else Path(str(own))


def _client(context: Context) -> int:
    number = context.node_config.get("partition-id")
    if not isinstance(number, int) or number < 0:
        raise InputError(
            "a node must say which client it is: flower-supernode --node-config 'partition-id=0 num-partitions=2'"
        )
    return number


def _step(job: Job) -> int:
    return job.round + {"train": 0, "describe": 1, "calibrate": 2, "conclude": 2}[job.task]
