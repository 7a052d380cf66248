"""Driver process that a test kills: runs a `Stream` with a checkpoint until it dies.

Takes one argument, JSON: bootstrap_servers, topic, home, format, options, and optionally
before_sink or after_sink: the number of the batch at which it kills itself and its JVM.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.conftest import CONNECTOR
from tests.spark.dying import DyingDataSource, kill_driver
from tests.spark.streams import Stream
from tests.spark.topics import Topics


def main(given: str) -> None:
    order = json.loads(given)
    home = Path(order["home"])
    builder = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.python.authenticate.socketTimeout", "60s")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    )
    if order["format"] == "kafka":
        jars = ",".join(str(jar) for jar in sorted(CONNECTOR.glob("*.jar")))
        builder = builder.config("spark.jars", jars)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(DyingDataSource)
    stream = Stream(spark, Topics(order["bootstrap_servers"]), order["topic"], home)

    def die_at(wanted: int | None, number: int) -> None:
        if wanted is not None and number >= wanted:
            kill_driver()

    stream.before_sink = lambda number: die_at(order.get("before_sink"), number)
    stream.after_sink = lambda number: die_at(order.get("after_sink"), number)
    query = stream.writer(order["format"], **order["options"]).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
