"""Your own model, without btfl's trainer: `python examples/own_model.py`, with torch and `pip install btfl` alone.

Three clients share a network and have a head each, trained by whatever you train with. What btfl adds: a summary of
each client's features, the total of the summaries, and at test time a method that mixes the two heads.
"""

import json

import numpy as np
import torch
from torch import nn

import btfl
import btfl.torch

torch.manual_seed(0)
rng, CLASSES, WIDTH, CLIENTS = np.random.default_rng(0), 6, 16, 3
MEANS = 0.5 * rng.normal(size=(CLASSES, 3, 8)).astype(np.float32)


def draw(shares: list[float], samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw inputs (samples, 3, 8) of classes that are so frequent: your data come from wherever you have them."""
    labels = rng.choice(CLASSES, size=samples, p=shares)
    return torch.from_numpy(MEANS[labels] + rng.normal(size=(samples, 3, 8)).astype(np.float32)), torch.tensor(labels)


def fit(module: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> None:
    """Train a little: your own loop, or a federation of any framework."""
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(inputs), labels).backward()
        optimiser.step()


# Your model: any module that gives features (n, d), of any sign, and a linear head on them.
backbone, head = nn.Sequential(nn.Flatten(), nn.Linear(24, WIDTH), nn.GELU()), nn.Linear(WIDTH, CLASSES)
clients = [draw([0.45 if k // 2 == number else 0.025 for k in range(CLASSES)], 200) for number in range(CLIENTS)]
fit(nn.Sequential(backbone, head), *(torch.cat(parts) for parts in zip(*clients, strict=True)))

# On each client: features, a personal head on the frozen backbone, and a summary, which is all that leaves the client.
features = [btfl.torch.features(backbone, inputs) for inputs, _ in clients]
personal = [nn.Linear(WIDTH, CLASSES) for _ in clients]
for own_head, z, (_, labels) in zip(personal, features, clients, strict=True):
    fit(own_head, torch.from_numpy(z), labels)
summaries = [btfl.Summary.of(z, labels.numpy(), CLASSES) for z, (_, labels) in zip(features, clients, strict=True)]
everyone = btfl.Summary.total(summaries)  # on the server; or summaries[0] + summaries[1] + ...

# Client 0 at test time: its own kind of data first, then other clients'. Nobody tells the method when that is.
bundle = btfl.ClientBundle.of(head, personal[0], summaries[0], everyone, features=features[0])
(own, own_labels), (other, other_labels) = draw([0.45, 0.45, 0.1, 0, 0, 0], 100), draw([0, 0, 0.1, 0.3, 0.3, 0.3], 100)
stream, labels = torch.cat([own, other]), torch.cat([own_labels, other_labels])
models = {name: btfl.torch.Adapted(backbone, getattr(btfl, name)(bundle)) for name in ("Btfl", "Coherent")}
heads = {"Global head": nn.Sequential(backbone, head), "Personal head": nn.Sequential(backbone, personal[0])}
for name, model in {**heads, **models}.items():  # each is one module: inputs in, logits or probabilities out
    answers = torch.cat([model(batch) for batch in stream.split(32)]).argmax(dim=1)
    print(f"{name}: {(answers == labels).double().mean():.1%} right")
print("The memory of the stream is plain JSON:", json.dumps(models["Btfl"].state))  # .restore() goes on from it
