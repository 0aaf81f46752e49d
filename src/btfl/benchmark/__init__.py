"""BTGFL: every method on the same five streams of every client, from the same trained weights."""
