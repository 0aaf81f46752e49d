"""Trained federations that come with btfl, one folder each: ``btfl bench --from zoo:NAME`` (``btfl.zoo.start``)."""
