"""Signals as arrays (n, time, channels): what goes wrong with sensors, and mild variants of a signal."""
