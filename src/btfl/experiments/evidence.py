"""What was run of each table and figure of the paper, and how far it agrees: facts that come with the package."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Literal

from pydantic import BaseModel, ConfigDict

FILE = "reproduced.toml"

Agreement = Literal["agrees", "in part", "differs", "stand-in", "not run", "drawing"]


class Number(BaseModel):
    """A number of ours, from the rows of a folder of ``results/``, and the paper's.

    Accuracies are in %, means over clients and seeds; ``mean_e`` is the mean weight of the global head.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str
    method: str
    stream: str
    measure: Literal["accuracy", "mean_e"] = "accuracy"
    ours: float
    paper: float | None = None


class Evidence(BaseModel):
    """What is known of one table or figure of the paper.

    Parameters
    ----------
    agreement : how far it agrees, in a word; ``stand-in``: another dataset or model, or a much smaller size
    scale : what was run, and at what scale
    verdict : how far it agrees, in a sentence or two
    numbers : on which that stands
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    agreement: Agreement
    scale: str
    verdict: str
    numbers: tuple[Number, ...] = ()

    @property
    def folders(self) -> list[str]:
        """Folders of ``results/`` that its numbers come from."""
        return list(dict.fromkeys(number.folder for number in self.numbers))


@cache
def evidence() -> dict[str, Evidence]:
    """Return what is known of each table and figure, by name: ``evidence()["table2"].verdict``."""
    content = (resources.files("btfl.experiments") / FILE).read_text(encoding="utf-8")
    return {name: Evidence(**values) for name, values in tomllib.loads(content).items()}
