"""Partition logs on disk, byte for byte in Kafka's format.

The package does not use connections, requests or topics; its callers pass in what it needs.
"""
