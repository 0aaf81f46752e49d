"""The methods by name: each is an adapter with settings. A method of your own is ``my_module:MyAdapter``."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from btfl.errors import InputError, UnknownNameError
from btfl.methods.base import Adapter
from btfl.methods.generative_head import with_generative_head
from btfl.runs.client import DeployedClient

GlobalHead = Literal["trained", "generative"]


@dataclass(frozen=True)
class Method:
    """A row of a table: an adapter with its settings."""

    name: str
    """How it is asked for."""
    title: str
    """How it stands in a table."""
    adapter: str
    """Where it is, as ``module:Class``; imported when it is needed."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    test_batch: int | None = None
    """How many samples it sees at a time; None: what the benchmark is set to."""
    recipe: str | None = None
    """The training it stands on; None: the adapter's own."""
    global_head: GlobalHead = "trained"
    """``generative``: the head made of all clients' sums takes the place of the trained global one."""

    def adapter_class(self) -> type[Adapter]:
        """Import the adapter."""
        return _import(self.adapter)

    @property
    def trained_with(self) -> str:
        """The recipe whose federation it runs on."""
        return self.recipe or self.adapter_class().recipe

    def build(self, client: DeployedClient) -> Adapter:
        """Make the adapter for one client."""
        if self.global_head == "generative":
            client = replace(client, bundle=with_generative_head(client.bundle))
        try:
            return self.adapter_class()(client, **self.settings)
        except TypeError as error:
            raise InputError(f"method '{self.name}' cannot be built with {dict(self.settings)}: {error}") from None


_METHODS = (
    Method("fedavg", "FedAvg", "btfl.methods.heads:GlobalHead"),
    Method("fedavg-ft", "FedAvg+FT", "btfl.methods.finetuned:FineTuned"),
    Method("fedrep", "FedRep", "btfl.methods.fedrep:FedRep"),
    Method("fedrod", "FedRoD", "btfl.methods.fedrod:FedRoD"),
    Method("knn-per", "kNN-Per", "btfl.methods.knn_per:KnnPer"),
    Method("fedthe", "FedTHE", "btfl.methods.fedthe:FedThe"),
    Method("fedthe-plus", "FedTHE+", "btfl.methods.fedthe_plus:FedThePlus"),
    Method("ttt", "TTT", "btfl.methods.ttt:TestTimeTraining"),
    Method("memo", "MEMO", "btfl.methods.memo:Memo"),
    Method("personal", "Personal head", "btfl.methods.heads:PersonalHead"),
    Method("btfl", "BTFL", "btfl.methods.core_methods:Btfl"),
    Method("btfl-release", "BTFL (release)", "btfl.methods.core_methods:Btfl", {"preset": "release"}),
    Method("coherent", "Coherent (ours)", "btfl.methods.core_methods:Coherent"),
    Method("fedthe-release", "FedTHE (release)", "btfl.methods.fedthe:FedThe", {"history": "release"}),
    Method("ttt-release", "TTT (release)", "btfl.methods.ttt:TestTimeTraining", recipe="ttt-release"),
    Method("fedthe-on-fedavg", "FedTHE on FedAvg", "btfl.methods.fedthe:FedThe", recipe="fedavg"),
    Method("tent", "Tent", "btfl.methods.tent:Tent"),
    Method("t3a", "T3A", "btfl.methods.t3a:T3A"),
    Method("lame", "LAME", "btfl.methods.lame:Lame"),
    Method("em", "EM", "btfl.methods.label_shift:Em"),
    Method("bbse", "BBSE", "btfl.methods.label_shift:Bbse"),
    Method("oracle", "Oracle", "btfl.methods.heads:Oracle"),
    Method("oracle-balanced", "Oracle (balanced)", "btfl.methods.heads:Oracle", recipe="balanced"),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _METHODS}


def find_method(text: str) -> Method:
    """Find a method: ``btfl``, ``btfl[count=after,test_batch=1]``, ``my_module:MyAdapter[k=3]``."""
    match = re.fullmatch(r"\s*([^\[\]]+?)\s*(?:\[(.*)\])?\s*", text)
    if match is None:
        raise InputError(f"cannot read the method '{text}'; write name or name[setting=value,...]")
    name, changes = match[1], _read_settings(text, match[2] or "")
    if ":" in name:
        method = Method(name, name.rpartition(":")[2], name)
    elif name.lower() in METHODS:
        method = METHODS[name.lower()]
    else:
        raise UnknownNameError("method", name, METHODS)
    if not changes:
        return method
    test_batch = changes.pop("test_batch", method.test_batch)
    if test_batch is not None and (not isinstance(test_batch, int) or test_batch < 1):
        raise InputError(f"test_batch is a number of samples, at least 1, not {test_batch!r}")
    global_head = changes.pop("global_head", method.global_head)
    if global_head not in get_args(GlobalHead):
        raise InputError(f"global_head is one of {', '.join(get_args(GlobalHead))}, not {global_head!r}")
    if global_head == "generative" and method.adapter_class().takes != "features":
        raise InputError(f"the method '{name}' works on images and has no place for another global head")
    title = f"{method.title} [{match[2]}]"
    settings = {**method.settings, **changes}
    return replace(
        method,
        name=text.strip(),
        title=title,
        settings=settings,
        test_batch=test_batch,
        global_head=global_head,
    )


def _read_settings(text: str, inner: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in inner.split(","))):
        key, equals, value = item.partition("=")
        if not equals or not key.strip().isidentifier():
            raise InputError(f"in the method '{text}', '{item}' is not setting=value")
        settings[key.strip()] = _read_value(value.strip())
    return settings


def _read_value(value: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return words[value.lower()]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _import(path: str) -> type[Adapter]:
    module_name, _, class_name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InputError(f"method '{path}': there is no module '{error.name}' on the Python path") from None
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Adapter)):
        raise InputError(f"method '{path}': {module_name} has no class {class_name} that derives from btfl's Adapter")
    return found
