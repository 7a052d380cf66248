"""Topics to Parquet, Delta or Iceberg, each record exactly once: `aiokq.spark.load`.

A streaming query reads; its batches are written by tasks to a temporary directory (`task_files`),
then made visible as one by a sink (`parquet_sink`). What a batch has is in its manifest.
"""
