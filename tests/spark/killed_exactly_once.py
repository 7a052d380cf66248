"""Driver process that copies a topic exactly once until `DyingSink` kills it.

Takes one argument, JSON: the arguments of `copying_once` without the session, and optionally
``settings`` of the session.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.dying import DRIVER
from tests.spark.dying_sink import DyingSink
from tests.spark.test_exactly_once import copying_once


def main(given: str) -> None:
    order = json.loads(given)
    os.environ[DRIVER] = str(os.getpid())
    home = Path(order.pop("home"))
    builder = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.python.authenticate.socketTimeout", "60s")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    )
    for name, value in order.pop("settings", {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(DyingSink)
    query = copying_once(spark, home=home, **order).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
