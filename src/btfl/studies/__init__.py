"""Studies beside the benchmark: drift detection and speed."""
