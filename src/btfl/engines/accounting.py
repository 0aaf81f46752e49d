"""One account of privacy for a run: what was released with which noise (``recipes/noise_plan.py`` plans it)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from btfl.errors import StorageError
from btfl.recipes.noise_plan import Plan, Release, epsilon_of, make_plan
from btfl.recipes.settings import TrainingSettings
from btfl.storage import read_described, sealed, write_json

__all__ = ["Account", "Plan", "Release", "epsilon_of", "make_plan"]

KIND, VERSION = "btfl privacy account", 1


class Account:
    """What a run has released so far, in a file of its folder if it has one; written before anything is released."""

    def __init__(self, path: Path | None, settings: TrainingSettings) -> None:
        self._path, self._settings = path, settings
        self._releases: list[dict[str, Any]] = []
        if path is not None and path.exists():
            found = read_described(path, KIND, VERSION, ("releases",))["releases"]
            if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
                raise StorageError(f"{path} does not say what was released")
            self._releases = found

    def note(self, what: str, multiplier: float, sampling: float = 1.0, times: int = 1) -> None:
        """Write down a release; the same one again, with the same noise, costs nothing more."""
        one = {"what": what, "multiplier": multiplier, "sampling": sampling, **({"times": times} if times > 1 else {})}
        if self._settings.privacy_noise == "seeded" and one in self._releases:
            return
        self._releases.append(one)
        if self._path is not None:
            content = {"releases": self._releases, "promise": self._settings.promise()}
            write_json(self._path, sealed({"kind": KIND, "version": VERSION, **content}))

    def spent(self) -> float:
        """Return the epsilon that everything so far comes to, at the delta of the settings."""
        counted: dict[tuple[float, float], int] = {}
        for one in self._releases:
            key = float(one["multiplier"]), float(one["sampling"])
            counted[key] = counted.get(key, 0) + int(one.get("times", 1))
        releases = [Release("", *key, times=times) for key, times in counted.items()]
        return epsilon_of(releases, self._settings.delta)
