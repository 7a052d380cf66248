"""Quotas of clients: bytes, loop time, changes of the metadata, and new connections per second."""
