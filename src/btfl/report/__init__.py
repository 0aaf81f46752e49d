"""Results people can look at."""
