"""Commands that run main classes of Kafka, and programs of ours that use its classes."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBS = ROOT / ".cache" / "kafka" / "libs"
SHELL = LIBS.parent / "shell"
"""The jars of Kafka's metadata shell that are not in `LIBS`."""
STREAMS = LIBS.parent / "streams"
"""The jars of Kafka Streams and of Connect's file connectors that are not in `LIBS`."""
EARLIER = LIBS.parent / "earlier"
"""By release, Kafka's own jars of earlier releases; they run with the other jars in `LIBS`."""


def java_command(
    main_class: str,
    *arguments: str,
    heap: str = "256M",
    optimised: bool = False,
    jars: Path | None = None,
    release: str | None = None,
) -> list[str]:
    """Return the command that runs a main class of Kafka, or a program given as a `.java` file.

    Tests start faster with only the first JIT compiler and the serial collector; `optimised`
    keeps the JVM's defaults, which benchmarks must measure.

    Args:
        jars: a directory with more jars, `SHELL` or `STREAMS`.
        release: a release in `EARLIER`; None for that in `LIBS`.
    """
    quick = [] if optimised else ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    if not optimised and release is None and class_archive().exists():
        # Java tells on the standard output if it cannot use an archive, and starts without it.
        quick += [f"-XX:SharedArchiveFile={class_archive()}", "-Xlog:disable"]
    classpath = f"{LIBS}/*" if release is None else _classpath_of(release)
    if jars is not None:
        classpath += f"{os.pathsep}{jars}/*"
    if main_class.endswith(".java"):
        source = Path(main_class)
        classpath += f"{os.pathsep}{_compiled(source, classpath)}"
        main_class = source.stem
    return [
        "java",
        f"-Xmx{heap}",
        *quick,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        classpath,
        main_class,
        *arguments,
    ]


@functools.cache
def class_archive() -> Path:
    """Return the file with Kafka's classes as Java has them in memory, for this Java and `LIBS`.

    Java starts with half of the CPU time if it is there: `tests/peers/class_archive.py` makes it.
    """
    java = Path(os.path.realpath(shutil.which("java") or "java"))
    files = [path for path in (java, *sorted(LIBS.glob("*.jar"))) if path.exists()]
    seen = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    digest = hashlib.sha256(repr(seen).encode()).hexdigest()[:12]
    return LIBS.parent / f"classes-{digest}.jsa"


def _classpath_of(release: str) -> str:
    others = (jar for jar in LIBS.glob("*.jar") if not jar.name.startswith(("kafka", "connect-")))
    return os.pathsep.join([f"{EARLIER / release}/*", *map(str, sorted(others))])


@functools.cache
def _compiled(source: Path, classpath: str) -> Path:
    """Return the directory with a program's classes, compiled once because that takes seconds."""
    compiler = os.path.realpath(shutil.which("javac") or "javac")
    digest = hashlib.sha256(compiler.encode() + source.read_bytes()).hexdigest()[:12]
    classes = LIBS.parent / "classes" / f"{source.stem}-{digest}"
    if not classes.exists():
        classes.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=classes.parent) as fresh:
            command = [compiler, "-cp", classpath, "-d", f"{fresh}/done", str(source)]
            subprocess.run(command, check=True)
            try:
                os.rename(f"{fresh}/done", classes)
            except OSError:
                if not classes.exists():  # otherwise another process has compiled them meanwhile
                    raise
    return classes
