"""A monitor: turns what a method says of a stream into alarms, at a rate of false alarms that is promised.

A method that has ``all_external`` says how probable it is that the stream has turned external; one that has
``strangeness`` says how little a sample resembles anything, and ``strange_stream`` how far the last samples together
are off the client's own. How large these become on a client's own data differs
from client to client, so the levels at which to alarm are found there (``levels.py``): streams are drawn from the
client's own validation features, and the level is the one that is first crossed at the promised rate. A bundle that
goes elsewhere without features takes these levels along. Needs numpy only, so a device can run it alone:

    monitor = Monitor(levels_for(method, bundle), on_alarm=print)
    for batch in stream:
        method.predict(batch)
        monitor.watch(method.trace)
"""

from btfl.monitor.levels import (
    CARRIED,
    RATES,
    AlarmLevels,
    Levels,
    calibrate,
    carried_levels,
    carrying,
    identity,
    level_alone,
    level_at,
    levels_for,
    watched,
)
from btfl.monitor.looks import Looks
from btfl.monitor.own import FEWEST, Own, own_features
from btfl.monitor.watch import SIGNALS, Alarm, Monitor, MonitorSettings

__all__ = [
    "CARRIED",
    "FEWEST",
    "RATES",
    "SIGNALS",
    "Alarm",
    "AlarmLevels",
    "Levels",
    "Looks",
    "Monitor",
    "MonitorSettings",
    "Own",
    "calibrate",
    "carried_levels",
    "carrying",
    "identity",
    "level_alone",
    "level_at",
    "levels_for",
    "own_features",
    "watched",
]
