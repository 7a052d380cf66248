"""Opens or creates a node's metadata log at its start, and appends the first records of an epoch."""
