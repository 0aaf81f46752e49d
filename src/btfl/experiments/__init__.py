"""What a benchmark run depends on, as one schema; and experiments that come with btfl, one TOML each."""
