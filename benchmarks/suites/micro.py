"""CPU time of single parts: the core per record, codecs, messages, metrics, decisions by ACLs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from benchmarks.micro import acls, codecs, counters
from benchmarks.report import Section


def micro(progress: Callable[[str], None]) -> list[Section]:
    progress("the core, compiled and pure")
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.micro.core", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    core = Section(
        "micro-core",
        "The core: ns of CPU per record",
        "100-byte values, 10-byte keys, 128 KiB batches; no network; the loop included.",
        ("path", "compiled", "pure"),
    )
    for path, costs in json.loads(result.stdout).items():
        core.rows.append([path, f"{costs['compiled']:,.0f}", f"{costs['pure']:,.0f}"])
    progress("codecs")
    packing = Section(
        "micro-codecs",
        "Codecs: ns of CPU per record",
        f"{codecs.BATCH_BYTES // 1024} KiB of JSON records of about 90 bytes, default levels.",
        ("codec", "compress", "decompress", "ratio"),
        [
            [name, f"{there:,.0f}", f"{back:,.0f}", f"{ratio:.1f}"]
            for name, there, back, ratio in codecs.measure_codecs()
        ],
    )
    progress("messages")
    messages = Section(
        "micro-messages",
        "Messages: us of CPU",
        "Compiled codecs of aiokq.wire; record bytes by reference.",
        ("message", "us"),
        [[name, f"{cost:,.1f}"] for name, cost in codecs.measure_messages()],
    )
    progress("metrics")
    metrics = Section(
        "micro-metrics",
        "Metrics: what counting costs",
        f"All counters of one batch of {counters.RECORDS_PER_BATCH:,} records, clock included.",
        ("batch", "ns a batch", "ns a record"),
        [
            [name, f"{cost:,.0f}", f"{cost / counters.RECORDS_PER_BATCH:.1f}"]
            for name, cost in counters.measure().items()
        ],
    )
    progress("ACLs")
    decisions = Section(
        "micro-acls",
        "Decisions by ACLs: us of CPU per topic",
        f"{acls.ACLS:,} ACLs of 1,000 principals, on names and prefixes of {acls.LENGTHS} lengths. "
        "A known answer is asked for again; the others are found in the index.",
        ("decision", "us", "asked"),
        [
            [name, f"{cost:,.2f}", acls.ASKED.get(name, "-")]
            for name, cost in acls.measure().items()
        ],
    )
    return [core, packing, messages, metrics, decisions]
