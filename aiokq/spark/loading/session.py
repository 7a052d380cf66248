"""The Spark session of a command: without web UI, quiet on demand, and local by default."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokq.errors import ConfigError
from aiokq.spark.loading.failures import LoadFailed, one_line_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_session"]

logger = logging.getLogger("aiokq.spark")

PACKAGE: Final = Path(__file__).resolve().parents[3]
"""Parent directory of the package aiokq."""


@contextlib.contextmanager
def spark_session(
    app: str,
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    quiet: bool = True,
) -> Iterator[SparkSession]:
    """Yield a session that is stopped at the end.

    Args:
        app: name of the application.
        master: Spark master.
        conf: Spark settings.
        quiet: discard what Spark and its workers write to stderr.

    Raises:
        ConfigError: PySpark or Java is missing.
        LoadFailed: Spark does not start.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError("PySpark is not installed: pip install 'aiokq[spark]'")
    _check_java()
    warehouse = tempfile.mkdtemp(prefix="aiokq-spark-")
    try:
        with _environment(master):
            session = _start(app, master, conf or {}, warehouse, quiet=quiet)
        try:
            yield session
        finally:
            _stop(session)
    finally:
        shutil.rmtree(warehouse, ignore_errors=True)


def _start(
    app: str, master: str, conf: Mapping[str, str], warehouse: str, *, quiet: bool
) -> SparkSession:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(app)
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # The default timeout is too short if many Python workers start together.
        "spark.python.authenticate.socketTimeout": "60s",
        "spark.sql.warehouse.dir": warehouse,
    }
    if master.startswith("local"):
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for key, value in {**defaults, **conf}.items():
        builder = builder.config(key, value)
    if quiet:
        # py4j would log long tracebacks if the JVM ends.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if main else None
    try:
        # The JVM keeps the stderr with which it is started.
        with _no_stderr() if quiet else contextlib.nullcontext():
            _start_jvm({**defaults, **conf, "spark.master": master})
            session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise LoadFailed(f"Spark did not start: {one_line_of(error)}") from error
    finally:
        # Spark has installed its own handler of SIGINT, so the previous handler is restored.
        if main and before is not None:
            signal.signal(signal.SIGINT, before)
    if quiet:
        session.sparkContext.setLogLevel("OFF")
        # The server's error handler would print a traceback if the JVM ends.
        server = getattr(session.sparkContext, "_accumulatorServer", None)
        if server is not None:
            server.handle_error = lambda request, address: None
    return session


def _start_jvm(conf: Mapping[str, str]) -> None:
    """Start the JVM in a process session of its own.

    A terminal (Ctrl-C) or a supervisor sends a signal to all processes of a group. Only the driver
    may receive the signal, because the JVM and the workers would abort the work.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    given = SparkConf().setAll(list(conf.items()))
    with _signals_later():
        gateway = launch_gateway(given, {"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Defer SIGINT and SIGTERM to the end of the block.

    If the driver ended before the JVM is connected to the driver, the JVM would run forever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, frame: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for again in came:
            signal.raise_signal(again)


def _stop(session: SparkSession) -> None:
    from py4j.protocol import Py4JError

    try:
        session.stop()
    except (Py4JError, OSError) as error:
        logger.info("Spark had ended before it was stopped error=%r", error)


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    sys.stderr.flush()
    before = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


@contextlib.contextmanager
def _environment(master: str) -> Iterator[None]:
    """Set the environment variables of a session; restore the old ones at the end of the block.

    For a local master, Python workers run this interpreter with this package in their path, and
    Spark listens on 127.0.0.1 unless `SPARK_LOCAL_IP` is set.
    """
    changes = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    if master.startswith("local"):
        changes["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
        changes["PYSPARK_PYTHON"] = sys.executable
        path = os.environ.get("PYTHONPATH")
        changes["PYTHONPATH"] = os.pathsep.join([str(PACKAGE), *([path] if path else [])])
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise ConfigError(
            f"Spark needs Java 17 or newer, and no such Java was found {where} (Debian: apt-get "
            "install default-jre-headless)"
        )
