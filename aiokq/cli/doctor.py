"""`aiokq doctor`: what this installation is, and whether a cluster answers."""

from __future__ import annotations

import importlib.util
import platform
import sys
import time
from pathlib import Path

import typer

from aiokq import fastpath
from aiokq._version import __version__
from aiokq.admin.client import Admin
from aiokq.admin.settings import AdminSettings
from aiokq.cli.options import AsJson, BootstrapServers, ConfigFile, run, settings_of
from aiokq.cli.output import print_json, print_table
from aiokq.core.errors import KafkaError

__all__ = ["doctor"]

CODECS = {"snappy": "cramjam", "lz4": "lz4", "zstd": "zstandard"}


def doctor(
    bootstrap_servers: BootstrapServers = None, config: ConfigFile = None, json: AsJson = False
) -> None:
    """Check this installation, and with --bootstrap-servers a cluster. Exit code 1 if not well."""
    findings: list[tuple[str, str, bool]] = [
        ("aiokq", __version__, True),
        ("Python", f"{platform.python_version()} on {sys.platform}", sys.version_info >= (3, 11)),
        _core(),
        ("uvloop", *_present("uvloop", "asyncio's own loop is used")),
        *((f"codec {codec}", *_present(module, "missing")) for codec, module in CODECS.items()),
        ("pyarrow", *_present("pyarrow", "not installed: to_arrow() needs it", needed=False)),
    ]
    if bootstrap_servers is not None or config is not None:
        findings += run(_cluster(bootstrap_servers, config))
    if json:
        print_json([{"check": c, "found": f, "ok": ok} for c, f, ok in findings])
    else:
        print_table(
            ("check", "found", ""), [(c, f, "ok" if ok else "PROBLEM") for c, f, ok in findings]
        )
    if not all(ok for _, _, ok in findings):
        raise typer.Exit(1)


def _core() -> tuple[str, str, bool]:
    if not fastpath.COMPILED:
        return "core", "pure Python: several times slower; install with a C compiler", True
    if fastpath.stale():
        return "core", "compiled from other sources than those installed: build it again", False
    return "core", "compiled", True


def _present(module: str, otherwise: str, *, needed: bool = True) -> tuple[str, bool]:
    found = importlib.util.find_spec(module) is not None
    return ("installed" if found else otherwise), found or not needed


async def _cluster(
    bootstrap_servers: str | None, config: Path | None
) -> list[tuple[str, str, bool]]:
    settings = settings_of(AdminSettings, bootstrap_servers, config)
    started = time.perf_counter()
    try:
        async with Admin(settings=settings) as admin:
            cluster = await admin.describe_cluster()
            topics = await admin.list_topics(internal=True)
    except KafkaError as error:
        return [("cluster", str(error), False)]
    milliseconds = (time.perf_counter() - started) * 1000
    brokers = ", ".join(f"{b.node_id} at {b.host}:{b.port}" for b in cluster.brokers)
    return [
        ("cluster", f"{cluster.cluster_id}, answered in {milliseconds:.0f} ms", True),
        ("brokers", brokers, bool(cluster.brokers)),
        ("topics", str(len(topics)), True),
    ]
