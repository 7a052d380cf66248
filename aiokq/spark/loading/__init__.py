"""Topics to Parquet, Delta or Iceberg, each record exactly once: `aiokq.spark.load`.

A streaming query reads (`run`); its batches are written by tasks to a temporary directory
(`task_files`), then made visible as one (`batches`) by a rename or by a table's own transaction
(`parquet_table` and the like). What a batch has is in its manifest.
"""
