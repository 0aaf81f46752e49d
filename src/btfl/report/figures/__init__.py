"""The figures, a file for each subject; functions return matplotlib Figures in the style of ``btfl.report.style``."""
