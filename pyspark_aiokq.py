"""Spark imports modules called pyspark_*, and registers the DefaultSource it finds in them."""

from aiokq.spark.source import AiokqDataSource

__all__ = ["DefaultSource"]


class DefaultSource(AiokqDataSource):
    """The data source that Spark uses for ``format("aiokq")``; users need not register it."""
