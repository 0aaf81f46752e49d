"""The datasets: each module has a ``load`` function that gives a ``Source``."""
