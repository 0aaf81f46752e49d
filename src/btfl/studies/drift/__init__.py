"""Streams that change, and who notices."""
