"""The client."""

from __future__ import annotations

from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from btfl.flower.exchange import LocalView, add_btfl  # BTFL
from existing_app.task import CLASSES, WIDTH, Net, load_data, train

app = ClientApp()


@app.train()
def fit(message: Message, context: Context) -> Message:
    """Train the global model on the client's data."""
    torch.set_num_threads(1)
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = data(context)
    keep_personal_head(model, images, labels, context)  # BTFL
    loss = train(model, images, labels, epochs=1)
    metrics = MetricRecord({"loss": loss, "num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


def data(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this client's data."""
    return load_data(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))


# BTFL, from here on


def personal_head(model: Net, context: Context) -> nn.Linear:
    """Return the client's own head; the first time a copy of the global one."""
    head = nn.Linear(WIDTH, CLASSES)
    kept = context.state.array_records.get("personal_head")
    head.load_state_dict(model.head.state_dict() if kept is None else kept.to_torch_state_dict())
    return head


def keep_personal_head(model: Net, images: torch.Tensor, labels: torch.Tensor, context: Context) -> None:
    """Train the client's own head on the frozen extractor; it stays in the client's state."""
    head = personal_head(model, context)
    with torch.no_grad():
        features = model.extractor(images)
    train(head, features, labels, epochs=1)
    context.state["personal_head"] = ArrayRecord(head.state_dict())


def view(arrays: ArrayRecord, context: Context) -> LocalView:
    """Say what the final model makes of this client's data."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    images, labels = data(context)
    with torch.no_grad():
        features = model.extractor(images).numpy()
    heads = [
        (head.weight.detach().numpy(), head.bias.detach().numpy())
        for head in (model.head, personal_head(model, context))
    ]
    return LocalView(features, labels.numpy(), *heads, {"client": int(context.node_config["partition-id"])})


def folder(context: Context) -> Path:
    """Say where this client keeps its bundle."""
    return Path(str(context.run_config["bundles"])) / f"client-{context.node_config['partition-id']}"


add_btfl(app, view, folder)
