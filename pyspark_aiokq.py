"""Entry point for Spark, which imports modules named pyspark_*, and registers DefaultSource."""

from aiokq.spark.source import AiokqDataSource

__all__ = ["DefaultSource"]


class DefaultSource(AiokqDataSource):
    """Data source for ``format("aiokq")``; Spark registers it without a call by the user."""
