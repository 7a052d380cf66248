"""Export of Parquet files to a topic, at least once and resumable: `aiokq.spark.export`.

Neither Java nor Spark is needed: pyarrow reads the files in a thread, a piece at a time (`files`),
rows become records (`records`), and one idempotent producer sends them. Each acknowledged piece is
noted in the `journal`, against which `verify` compares the log at the end.
"""
