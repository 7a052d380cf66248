"""The metadata of Apache Kafka in a log directory: its takeover, and the hand-over to Kafka.

``__cluster_metadata-0`` is never written to, so that Kafka can continue with it. A hand-over writes
another file, ``bootstrap.checkpoint``.
"""
