"""Fixtures of the Spark tests: one session and one broker for all, and a warning without Java."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.peers.apache_kafka import ApacheKafka, apache_kafka
from tests.peers.apache_kafka import why_absent as why_no_kafka
from tests.peers.broker_process import BrokerProcess, broker_process
from tests.peers.ports import free_ports
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
CONNECTOR = ROOT / ".cache" / "connector"
APACHE = {
    "log_retention_ms": "-1",
    "auto_create_topics_enable": "false",
    "file_delete_delay_ms": "100",
    "log_cleaner_backoff_ms": "200",
    "log_initial_task_delay_ms": "500",
}
_numbers = itertools.count()


def why_absent() -> str | None:
    """Return why Spark cannot run here; None if it can."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "PySpark is not installed (pip install 'aiokq[spark]')"
    java = (
        os.path.join(os.environ["JAVA_HOME"], "bin", "java")
        if "JAVA_HOME" in os.environ
        else "java"
    )
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    except OSError:
        return "no Java: install 17 or newer (Debian: apt-get install default-jre-headless)"
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < 17:
        return f"Spark needs Java 17 or newer, this is {told.splitlines()[0] if told else java}"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                # A stream starts six processes, which takes seconds, or minutes on a loaded
                # machine.
                item.add_marker(pytest.mark.timeout(600))
            # The first job of a session waits 10 s for a JVM and five kinds of workers.
            item.add_marker(pytest.mark.filterwarnings("default"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reason = why_absent()
    if reason is not None:
        terminalreporter.write_line(f"SPARK WAS NOT TESTED: {reason}", red=True, bold=True)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small session on two cores whose tasks are attempted four times.

    Spark's own Kafka connector is available as format "kafka" if `make connector` has fetched it.
    """
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"SPARK IS NOT TESTED: {reason}")
    from pyspark.sql import SparkSession

    home = tmp_path_factory.mktemp("spark")
    # Workers find aiokq, the tests' modules and pyspark_aiokq here; read when the JVM starts.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([before] if before else [])])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Otherwise workers run any python3 on the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = ",".join(str(jar) for jar in sorted(CONNECTOR.glob("*.jar")))
    builder = (
        SparkSession.builder.master("local[2,4]")
        .appName("aiokq tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        # A worker connects late on a busy machine.
        .config("spark.python.authenticate.socketTimeout", "60s")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
    )
    if jars:
        builder = builder.config("spark.jars", jars)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The embedded broker as a process of its own, for all tests; it creates topics on first use.

    It keeps records of any age, and compacts soon.
    """
    keep = ("--set", "log.retention.ms=-1", "--set", "log.cleaner.backoff.ms=200")
    with broker_process(tmp_path_factory.mktemp("broker"), "--profile", "dev", *keep) as process:
        yield process


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"s{next(_numbers)}"


@pytest.fixture
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheKafka]:
    """One node of Apache Kafka for all tests that need one; it does not create topics itself."""
    reason = why_no_kafka()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    with apache_kafka(heap="512M", **APACHE) as kafka:
        yield kafka


BROKERS = ["ours", pytest.param("apache", marks=[pytest.mark.kafka, pytest.mark.full])]


@pytest.fixture(params=BROKERS)
def either(request: pytest.FixtureRequest) -> Topics:
    """Topics of the aiokq broker, and of Apache Kafka."""
    if request.param == "apache":
        apache: ApacheKafka = request.getfixturevalue("apache")
        return Topics(apache.bootstrap_servers)
    broker: BrokerProcess = request.getfixturevalue("broker")
    return Topics(broker.bootstrap_servers)


class Killable(NamedTuple):
    """A broker that a test kills and starts."""

    topics: Topics
    kill: Callable[[], object]
    start: Callable[[], object]


@pytest.fixture(params=BROKERS)
def killable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killable]:
    """The aiokq broker in a process of its own, or the node of Apache Kafka that all tests use."""
    if request.param == "apache":
        apache: ApacheKafka = request.getfixturevalue("apache")
        yield Killable(
            Topics(apache.bootstrap_servers),
            lambda: apache.stop_node(1, signal.SIGKILL),
            lambda: apache.start_node(1),
        )
        if not apache.processes:
            apache.start_node(1)
        return
    (port,) = free_ports(1)
    broker = BrokerProcess(
        tmp_path / "data", "--profile", "dev", "--set", "log.retention.ms=-1", port=port
    )
    broker.start()
    yield Killable(
        Topics(broker.bootstrap_servers), lambda: broker.stop(signal.SIGKILL), broker.start
    )
    with suppress(ValueError):
        broker.stop()
