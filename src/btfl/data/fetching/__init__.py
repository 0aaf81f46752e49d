"""Getting datasets into the cache, verified."""
