"""Partition logs on disk, byte for byte in Kafka's format.

The package does not import connections, request handlers or the topic registry; its callers pass in
the settings and ids that it needs.
"""
