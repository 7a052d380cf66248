"""Partition logs on disk, byte for byte in Kafka's format.

Knows no connection, request or topic registry: those stand above and hand in what it needs.
"""
