"""Frozen backbones: features of samples, computed once, kept on disk by content; only heads are trained on them."""
