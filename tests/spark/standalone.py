"""A standalone Spark cluster on this machine, with workers on two of its loopback addresses.

Spark attempts a slow task a second time only on another host, and never with a local master.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.peers.ports import free_ports
from tests.spark.conftest import ROOT

__all__ = ["standalone_spark"]

HOSTS = ("127.0.0.1", "127.0.0.2")
START_SECONDS = 120.0


@contextmanager
def standalone_spark(home: Path) -> Iterator[dict[str, str]]:
    """Run a master and a worker per host; yield the settings with which an application uses them.

    Each worker has an executor with two cores.
    """
    spark = Path(pyspark.__file__).parent
    (port,) = free_ports(1)
    url = f"spark://{HOSTS[0]}:{port}"
    with ExitStack() as running:
        output = running.enter_context(open(home / "standalone.out", "ab"))

        def start(main_class: str, *arguments: str) -> None:
            process = subprocess.Popen(
                [
                    *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
                    *("-cp", f"{spark}/jars/*", f"org.apache.spark.deploy.{main_class}"),
                    *arguments,
                ],
                cwd=home,
                # Spark's scripts find out the version of Scala, and nothing else does.
                env={**os.environ, "SPARK_HOME": str(spark), "SPARK_SCALA_VERSION": "2.13"},
                stdout=output,
                stderr=output,
            )
            running.callback(process.wait)
            running.callback(process.terminate)  # a worker ends its executors then

        start("master.Master", "--host", HOSTS[0], "--port", str(port), "--webui-port", "0")
        _wait_until_accepting(HOSTS[0], port)
        for number, host in enumerate(HOSTS):
            start(
                "worker.Worker",
                *("--host", host, "--webui-port", "0", "--cores", "2", "--memory", "1g"),
                *("--work-dir", str(home / f"worker-{number}"), url),
            )
        yield {
            "spark.master": url,
            "spark.executor.memory": "640m",
            "spark.executor.cores": "2",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            "spark.pyspark.python": sys.executable,
            # The stream begins when both executors are there.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.cores.max": "4",
        }


def _wait_until_accepting(host: str, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection((host, port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
