"""Test-time methods, one file each: built from what a client keeps, fed a stream, with a memory of it.

Importing this package imports no torch.
"""
