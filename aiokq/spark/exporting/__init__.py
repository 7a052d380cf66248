"""Export of Parquet files to a topic, at least once and resumable: `aiokq.spark.export`.

Neither Java nor Spark is needed: pyarrow reads the files in a thread, a piece at a time (`files`),
rows become records (`records`), and one idempotent producer sends them. The `journal` notes each
acknowledged piece; at the end, `verify` compares the log with the journal.
"""
