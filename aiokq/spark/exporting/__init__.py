"""Export of Parquet files to a topic, at least once and resumable: `aiokq.spark.export`.

An export needs neither Java nor Spark. pyarrow reads the files in pieces (`files`), rows become
records (`records`), and a producer sends the records (`sending`). The `journal` notes acknowledged
pieces, and `verify` compares the log with the journal.
"""
