"""Client quotas: bytes, event loop time, partition changes, and new connections per second."""
