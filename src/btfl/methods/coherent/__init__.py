"""Coherent, our own version of the idea (docs/method.md)."""
