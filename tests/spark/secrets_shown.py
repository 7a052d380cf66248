"""Driver process that reads and writes with secret options, and keeps all that Spark shows of them.

Takes one argument, JSON: home, topic, options (good ones), wrong (changed options of a query that
fails), hidden (options of a frame that is only explained), register (whether `register` is called).
Below `home` it leaves: `plans` (text of explain and of errors), `pages` (the UI and its REST
interface), `events` (event logs), `checkpoint`.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

PAGES = (
    "jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/", "StreamingQuery/",
    *(f"SQL/execution/?id={number}" for number in range(6)),
)  # fmt: skip
REST = ("environment", "jobs", "stages", "sql?details=true&planDescription=true&length=100")


class Shown:
    """Writes what Spark shows into files.

    Attributes:
        count: number of files.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self.count = 0

    def keep(self, place: str, text: str) -> None:
        directory = self._home / place
        directory.mkdir(exist_ok=True)
        self.count += 1
        (directory / f"{self.count}.txt").write_text(text)

    def explain(self, frame: DataFrame) -> None:
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            for mode in ("extended", "formatted", "cost", "codegen"):
                try:
                    frame.explain(mode=mode)
                except Exception as error:  # options that contradict each other
                    print(error)
        self.keep("plans", told.getvalue())

    def fails(self, run: Any) -> None:
        try:
            run()
        except Exception as error:
            self.keep("plans", f"{error!r}\n{error}")
            return
        raise AssertionError("it did not fail")


def page(url: str) -> str:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())
    return ""


def main(order: dict[str, Any]) -> None:
    home = Path(order["home"])
    (home / "events").mkdir()
    spark = (
        SparkSession.builder.master("local[1,1]")
        .appName("secrets")
        .config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", (home / "events").as_uri())
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "700m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.python.authenticate.socketTimeout", "60s")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.sql.maxPlanStringLength", "1000000")
        .config("spark.sql.debug.maxToStringFields", "1000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("INFO")
    if order["register"]:
        from aiokq.spark import register

        register(spark)
    shown = Shown(home)
    options, topic = order["options"], order["topic"]

    def frame(**changes: str) -> DataFrame:
        given = {**options, "subscribe": topic, **changes}
        return spark.read.format("aiokq").options(**given).load()

    # batches: a write, a read, and a frame that is not read
    rows = spark.range(3).selectExpr("string(id) as value")
    rows.write.format("aiokq").mode("append").options(topic=topic, **options).save()
    assert frame().count() == 3
    shown.explain(frame())
    shown.explain(frame(**order["hidden"]))
    # SQL text with options
    given = ", ".join(
        f"'{name}' '{value}'" for name, value in {**options, "subscribe": topic}.items()
    ).replace("\n", "\\n")
    with contextlib.suppress(Exception):  # what a release does not support it refuses
        spark.sql(f"CREATE TEMPORARY VIEW records USING aiokq OPTIONS ({given})")
        assert spark.sql("SELECT * FROM records").count() == 3
        shown.explain(spark.sql("SELECT * FROM records"))
    # a stream from the topic into the topic
    source = spark.readStream.format("aiokq").options(
        **{**options, "subscribe": topic, "startingOffsets": "earliest"}
    )
    shown.explain(source.load())
    query = (
        source.load()
        .selectExpr("value")
        .writeStream.format("aiokq")
        .options(**options, topic=topic)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        query.explain(extended=True)
    progress = [json.dumps(one, default=str) for one in query.recentProgress]
    shown.keep("plans", "\n".join([told.getvalue(), *progress, str(query.status)]))
    # logins that fail: in the planner, in a task, in a stream
    shown.fails(lambda: frame(**order["wrong"]).count())
    shown.fails(
        lambda: (
            rows.write.format("aiokq")
            .mode("append")
            .options(**{**options, "topic": topic, **order["wrong"]})
            .save()
        )
    )
    failing = (
        spark.readStream.format("aiokq")
        .options(**{**options, "subscribe": topic, **order["wrong"]})
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(home / "failed"))
        .start()
    )
    shown.fails(failing.awaitTermination)

    address = spark.sparkContext.uiWebUrl
    assert address is not None
    identity = spark.sparkContext.applicationId
    for path in PAGES:
        shown.keep("pages", page(f"{address}/{path}"))
    for path in REST:
        shown.keep("pages", page(f"{address}/api/v1/applications/{identity}/{path}"))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
