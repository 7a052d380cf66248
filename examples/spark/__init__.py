"""Programs that need Spark: `pip install aiokq[spark]` and Java 17."""
