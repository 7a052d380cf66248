"""Driver process that test_stream_write.py kills while it slowly copies a topic."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.test_stream_write import copying


def main(servers: str, source: str, target: str, checkpoint: str) -> None:
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.warehouse.dir", checkpoint + "-warehouse")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    query = copying(spark, servers, source, target, Path(checkpoint), limit=100).start()
    query.awaitTermination()


main(*sys.argv[1:])
