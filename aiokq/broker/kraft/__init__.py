"""The metadata of Apache Kafka in a log directory: reading it, taking it over, writing it.

``__cluster_metadata-0`` is never written to, so that Kafka can continue with it.
"""
