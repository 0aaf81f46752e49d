"""What a group of runs has found, in a sentence."""

from __future__ import annotations

from btfl.methods.registry import METHODS
from btfl.report.accuracy import AVERAGE, LEVEL, Interval, compare_in, values_of
from btfl.report.groups import Group, is_oracle
from btfl.report.table import number


def verdict(group: Group) -> str:
    """Return which method is best on average and whether clearly; or so for the method that was asked for.

    Clearly: the paired bootstrap interval of the difference to the next one does not hold zero.
    """
    seeds = group.by_seed
    averages = {name: float(values_of(seeds, name, AVERAGE).mean()) for name in group.titles}
    known = group.rows.groupby("method")["seed"].unique()
    first = group.asked or max(_ranked(averages), key=averages.__getitem__, default=None)
    if first is None:
        return "There is no method to rank."
    rest = [name for name in _ranked(averages) if name != first and set(known[name]) & set(known[first])]
    title, mean = group.titles[first], number(averages[first])
    if not rest:
        return f"{title} has an average of {mean} %; there is no other method to compare it with."
    other = max(rest, key=averages.__getitem__)
    found = compare_in(group.by_client, first, other)[AVERAGE]
    if group.asked is not None:
        word = {1: "is better than", -1: "is worse than", 0: "is not clearly different from"}[_sign(found)]
        said = _difference(found, len(group.seeds))
        return f"{title} {word} {group.titles[other]}, the best of the others on average: {said}."
    strangers = [name for name in rest if not _are_kin(name, first)]
    named = dict.fromkeys([other, max(strangers, key=averages.__getitem__, default=other)])
    return f"{title} has the highest average, {mean} %, {' and '.join(_above(group, first, name) for name in named)}."


def _above(group: Group, first: str, other: str) -> str:
    found = compare_in(group.by_client, first, other)[AVERAGE]
    word = "clearly above" if _sign(found) else "not clearly above"
    return f"{word} {group.titles[other]}: {_difference(found, len(group.seeds))}"


def _are_kin(name: str, other: str) -> bool:
    """Return whether two are versions or settings of one method."""
    one, two = (METHODS.get(each.partition("[")[0]) for each in (name, other))
    return one is not None and two is not None and one.method is two.method


def _ranked(averages: dict[str, float]) -> list[str]:
    """Name the methods that have an average and are no ceiling."""
    return [name for name, mean in averages.items() if mean == mean and not is_oracle(name)]


def _sign(found: Interval) -> int:
    return 1 if found.low > 0 else -1 if found.high < 0 else 0


def _difference(found: Interval, seeds: int) -> str:
    low, high = (number(value, 1, signed=True) for value in (found.low, found.high))
    over = "clients and seeds" if seeds > 1 else "clients; one seed"
    points = number(found.difference, 1, signed=True)
    return f"{points} points ({100 * LEVEL:g} % interval {low} to {high}, over {over})"
