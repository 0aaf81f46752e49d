"""The figures, one file a subject; each function gives a matplotlib Figure in the style of ``btfl.report.style``."""
