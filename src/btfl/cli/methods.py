"""``btfl methods``: what there is to compare."""

from __future__ import annotations


def methods() -> None:
    """List the methods: origin, training, what they see, and their settings.

    Example: `btfl methods`
    """
    import inspect

    from rich.console import Console

    from btfl.methods.registry import METHODS

    console = Console(highlight=False)
    for method in METHODS.values():
        adapter = method.adapter_class()
        console.print(f"[bold]{method.name}[/bold]  {method.title}: {adapter.summary}")
        parameters = list(inspect.signature(adapter.__init__).parameters.values())[2:]
        settings = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
        settings.update(method.settings)
        told = ", ".join(f"{key} = {value}" for key, value in settings.items()) or "none"
        console.print(
            f"    paper: {adapter.paper or 'none'}\n    trains: {method.trained_with}; sees: {adapter.takes}; "
            f"settings: {told}",
            markup=False,
        )
    console.print(
        "\nA method of your own: --method my_module:MyAdapter; change settings with name\\[setting=value,...]."
    )
