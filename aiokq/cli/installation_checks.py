"""Checks of this installation for `aiokq doctor`; `cluster_checks` has the checks of a cluster."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["Check", "Status", "installation"]

OLDEST_PYTHON: Final = (3, 11)
FEW_FILES: Final = 1024
CODEC_PACKAGES: Final = {"gzip": None, "snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}
EXTRAS: Final = {
    "kazoo": ("zookeeper", "`aiokq groups import-zookeeper --zookeeper`"),
    "pyarrow": ("arrow", "batch.to_arrow()"),
}
"""For each package, the extra that installs the package, and the purpose of the package."""


class Status(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    """The checked part works, with a drawback."""
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One line of the output of `aiokq doctor`.

    Attributes:
        name: name of the checked part.
        detail: result of the check.
        fix: advice; empty if there is none.
    """

    name: str
    status: Status
    detail: str
    fix: str = ""


def installation() -> Iterator[Check]:
    """Yield the checks of this installation; they need no network."""
    yield _python()
    yield _event_loop()
    yield _core()
    for codec in CODEC_PACKAGES:
        yield _codec(codec)
    for package in EXTRAS:
        yield _extra(package)
    yield from _open_files()


def _python() -> Check:
    version = platform.python_version()
    detail = f"{platform.python_implementation()} {version} on {platform.system()} "
    detail += platform.machine()
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return Check("python", Status.FAIL, detail, f"use Python {wanted} or newer")
    return Check("python", Status.OK, detail)


def _event_loop() -> Check:
    version = _version("uvloop")
    if version is None:
        return Check(
            "event loop",
            Status.WARN,
            "asyncio's own; uvloop is not installed",
            "pip install uvloop: it is faster (there is none for Windows)",
        )
    return Check("event loop", Status.OK, f"uvloop {version}")


def _core() -> Check:
    try:
        from aiokq import fastpath
        from aiokq.fastpath.loading import load
        from aiokq.fastpath.units import UNITS

        for unit in UNITS:
            load(unit, fastpath.COMPILED)
    except ImportError as error:
        return Check(
            "core",
            Status.FAIL,
            str(error),
            "pip install --force-reinstall --no-deps aiokq, or in a checkout `make setup`",
        )
    if fastpath.stale():
        return Check(
            "core",
            Status.FAIL,
            "compiled, but from other sources than the installed ones",
            "build it again: pip install --force-reinstall --no-deps aiokq, or in a checkout "
            "`make setup`",
        )
    if fastpath.COMPILED:
        return Check("core", Status.OK, "compiled")
    if os.environ.get("AIOKQ_PURE") == "1":
        return Check(
            "core", Status.WARN, "pure Python: AIOKQ_PURE=1 is set", "unset AIOKQ_PURE for speed"
        )
    assert fastpath.MISSING is not None
    reason, remedy = fastpath.MISSING
    return Check(
        "core",
        Status.WARN,
        f"pure Python: correct, but several times slower; there is no compiled core: {reason}",
        f"{remedy}, or set AIOKQ_PURE=1 if this is wanted",
    )


def _codec(name: str) -> Check:
    """Check a codec with a sample, because an installed library may be broken."""
    from aiokq.records.compression import codec_id, compress, decompress

    package = CODEC_PACKAGES[name]
    fix = f"pip install --force-reinstall {package}" if package else "use a Python with zlib"
    sample = b"aiokq" * 100
    try:
        intact = decompress(codec_id(name), compress(codec_id(name), sample), 1024) == sample
    except Exception as error:  # noqa: BLE001  a broken library may raise any exception
        return Check(name, Status.FAIL, f"{type(error).__name__}: {error}", fix)
    if not intact:
        return Check(name, Status.FAIL, "decompressed data differs from the input", fix)
    if package is None:
        import zlib

        return Check(name, Status.OK, f"zlib {zlib.ZLIB_RUNTIME_VERSION}")
    return Check(name, Status.OK, f"{package} {_version(package)}")


def _extra(package: str) -> Check:
    extra, purpose = EXTRAS[package]
    version = _version(package)
    if version is None:
        return Check(
            package,
            Status.OK,
            f"not installed; optional, for {purpose}",
            f"pip install 'aiokq[{extra}]' if you want it",
        )
    return Check(package, Status.OK, version)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _open_files() -> Iterator[Check]:
    try:
        import resource
    except ImportError:  # Windows lacks this module
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        yield Check("open files", Status.OK, "no limit")
        return
    highest = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    detail = f"limit {soft} (hard limit {highest})"
    if soft < FEW_FILES:
        fix = f"ulimit -n {FEW_FILES} or more: a broker needs one per connection and log segment"
        yield Check("open files", Status.WARN, detail, fix)
    else:
        yield Check("open files", Status.OK, detail)
