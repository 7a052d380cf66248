"""Parquet to a topic, at least once, and where it stopped again: `aiokq.spark.export`.

No Java and no Spark: pyarrow reads files in a thread, a piece at a time (`files`), rows become
records (`mapping`), and one idempotent producer sends them. What is acknowledged is noted piece by
piece (`journal`), which is also what is checked against the log at the end (`check`).
"""
