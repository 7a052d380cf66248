"""Load of topics to Parquet, Delta or Iceberg, each record exactly once: `aiokq.spark.load`.

A streaming query reads the topics (`run`). Tasks write each batch to a temporary directory
(`task_files`). The driver makes the batch visible as a whole (`batches`), by a rename
(`parquet_table`) or by a transaction of the table (`delta_table`, `iceberg_table`). Each batch has
a manifest, which lists the files and offsets of the batch.
"""
