"""TTT, online (Sun et al., ICML 2020): go on learning to tell rotations apart, sample by sample.

The network learnt the rotations together with the classes, so a step that makes it see better which way up a sample is
should also help it see what it is. The steps are kept for the samples that follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from btfl.core.bundle import ClientBundle
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Floats, Method, Takes
from btfl.methods.card import OCHRE, Card
from btfl.methods.state import LARGEST_WEIGHT, check_keys, pack, unpack
from btfl.pixels.types import Images

if TYPE_CHECKING:
    from btfl.models import Network


@dataclass(frozen=True)
class TttSettings(Settings):
    """How TTT learns."""

    title: ClassVar[str] = "TTT"

    steps: int = knob(1, "Steps for each sample.", least=1)
    learning_rate: float = knob(0.001, "Size of a step.", above=0)
    copies: int = knob(8, "Copies of the sample that a step sees, each turned all four ways.", least=1)
    seed: int = knob(0, "Random seed of the copies.")


class TestTimeTraining(Method):
    """One step on the rotation loss of each sample before its prediction, kept for the next sample.

    A step sees ``copies`` of the sample, shifted and mirrored at random as in training, each turned all four ways: 32
    images with the default. It moves the extractor and the rotation head; the classifier is left alone. Samples are
    taken one at a time, so the answers do not depend on how the stream is cut into batches.
    """

    __test__: ClassVar[bool] = False  # or else pytest takes the name for a test's
    cards: ClassVar[tuple[Card, ...]] = (
        Card("ttt", "TTT", "a step on each sample's rotations, kept for the next sample", "Sun et al., ICML 2020",
             OCHRE, "< open"),
        Card("ttt-release", "TTT (release)", colour=OCHRE, marker="< dotted", line="dotted", recipe="ttt-release"),
    )  # fmt: skip
    takes: ClassVar[Takes] = "images"
    gradients: ClassVar[bool] = True
    samples: ClassVar[tuple[str, ...]] = ("images",)
    recipe: ClassVar[str] = "ttt"
    settings_class: ClassVar[type[Settings]] = TttSettings
    settings: TttSettings

    def __init__(self, client: Client | ClientBundle, settings: TttSettings | None = None, **changes: Any) -> None:
        from torch import nn

        from btfl.models.rotations import rotation_head
        from btfl.models.tuning import Snapshot, plain_sgd

        super().__init__(client, settings, **changes)
        self.network: Network = self.client.network("finetuned")
        self.rotation = rotation_head(self.client.auxiliary("finetuned", "rotation"))
        self._tuned = nn.ModuleDict({"extractor": self.network.extractor, "rotation": self.rotation})
        self._first = Snapshot(self._tuned)
        self._optimiser = plain_sgd(self._tuned.parameters(), self.settings.learning_rate)

    def predict(self, batch: ArrayLike) -> Floats:
        """Learn from the rotations of each of (samples, height, width, channels) images, then return its answer."""
        from btfl.models.tuning import predicted

        answers = []
        for image in np.ascontiguousarray(batch):
            self.learn(image)
            answers.append(predicted(self.network, image))
        return np.stack(answers)

    def learn(self, image: Images) -> list[float]:
        """Take the steps on one image of (height, width, channels); return the rotation loss before each."""
        import torch

        from btfl.models.inputs import to_tensor
        from btfl.models.rotations import rotated_every_way
        from btfl.models.tuning import draws_for
        from btfl.pixels.images import crop_and_flip

        copies = np.repeat(image[None], self.settings.copies, axis=0)
        rng = draws_for(image, self.settings.seed, "ttt")
        losses = []
        with torch.enable_grad():
            for _ in range(self.settings.steps):
                images, turns = rotated_every_way(to_tensor(crop_and_flip(copies, rng)))
                self._optimiser.zero_grad(set_to_none=True)
                loss = torch.nn.functional.cross_entropy(self.rotation(self.network.features(images)), turns)
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimiser.step()
                losses.append(float(loss.detach()))
        return losses

    @property
    def state(self) -> dict[str, Any]:
        """The tuned weights of extractor and rotation head, as base64 text: as large as the network."""
        from btfl.models import to_arrays

        return {"weights": {name: pack(array) for name, array in to_arrays(self._tuned).items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        from btfl.models import load_arrays

        check_keys(state, ("weights",))
        check_keys(state["weights"], self._tuned.state_dict())
        load_arrays(
            self._tuned, {name: unpack(name, value, LARGEST_WEIGHT) for name, value in state["weights"].items()}
        )
        self.found = None

    def reset(self) -> None:
        """Undo all steps."""
        super().reset()
        self._first.restore()
