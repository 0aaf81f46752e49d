"""Run folders: what a run leaves on disk, written and read. Needs no torch."""
