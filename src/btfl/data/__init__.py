"""Datasets, their partition among clients, and the five test streams made from them."""
