"""The datasets: each module has a ``load`` function that returns a ``Source``."""
