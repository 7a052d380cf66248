"""The metadata of Apache Kafka in a log directory: reading it, taking it over, writing it.

Nothing is ever written into ``__cluster_metadata-0``: Kafka can go on with what it left there.
"""
