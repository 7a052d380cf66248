"""Load of topics to Parquet, Delta or Iceberg, each record exactly once: `aiokq.spark.load`.

A streaming query reads the topics (`run`). Tasks write each batch to a temporary directory
(`task_files`), and the driver makes it visible as a whole (`batches`), by a rename
(`parquet_table`) or by a transaction of the table (`delta_table`, `iceberg_table`). A manifest per
batch lists its files and offsets.
"""
