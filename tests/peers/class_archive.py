"""Makes the archive of Kafka's classes with which the Java programs of the tests start faster.

`make kafka` runs this. It never fails: without an archive, Java reads the classes from the jars.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.peers.apache_kafka import LIBS, apache_kafka, why_absent
from tests.peers.java_command import class_archive

SECONDS = 120.0
"""Seconds in which a node must have ended and written its classes; it takes five."""


def main() -> None:
    if why_absent() is not None or class_archive().exists():
        return
    print("aiokq: making an archive of Kafka's classes ...", flush=True)
    for old in LIBS.parent.glob("classes-*.jsa"):
        old.unlink(missing_ok=True)
    # In the same directory, because it is moved: tests never see a part of an archive.
    with tempfile.TemporaryDirectory(dir=LIBS.parent) as directory:
        fresh = Path(directory, "classes.jsa")
        try:
            with apache_kafka(java_options=[f"-XX:ArchiveClassesAtExit={fresh}"]) as kafka:
                kafka.stop_node(1, seconds=SECONDS)
            fresh.rename(class_archive())
        except (OSError, RuntimeError) as error:
            print(f"aiokq: Java starts without an archive of Kafka's classes: {error}")


if __name__ == "__main__":
    main()
