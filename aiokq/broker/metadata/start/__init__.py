"""Opens or creates the metadata log when a node starts, and begins a new epoch in the log."""
