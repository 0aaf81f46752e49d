"""``btfl serve``: adapters for a fleet, online: the Open Inference Protocol, a durable memory, a monitor and a page.

Needs ``pip install btfl[serve]`` and no torch. docs/serving.md says how it is used and run.
"""

from __future__ import annotations

from importlib.util import find_spec

from btfl.errors import InputError


def need_serve() -> None:
    """Raise an ``InputError`` that says what to install, if something that serving needs is not."""
    names = ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client", "orjson")
    if missing := [name for name in names if find_spec(name) is None]:
        raise InputError(f"btfl serve needs {', '.join(missing)}: pip install 'btfl[serve]'")
