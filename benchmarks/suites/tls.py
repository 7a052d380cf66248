"""The client over TLS, beside plain connections and beside confluent-kafka, on Apache Kafka."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import servers
from benchmarks.report import Section
from benchmarks.rounds import Contender, run_rounds
from benchmarks.suites.clients import MIB, Progress
from tests.peers.pki import Pki

COLUMNS = ("client", "records/s", "x confluent over TLS", "x plain", "CPU ns/record", "+-")

WARM_UP_BYTES = 1_500_000_000
"""Bytes that Apache Kafka encrypts first: its first gigabyte is three times slower."""

RETAINED_BYTES = 256 * MIB
"""What Apache Kafka keeps of a partition: its log is in memory, and memory used before is reused.

With logs on a disk, the rate of produced bytes was that of the disk and of fresh pages of a virtual
machine, which differed by a factor of two from hour to hour, over TLS as well as plain.
"""

LOG_BYTES = 20 * RETAINED_BYTES
"""Room for the partitions of a run, their deleted segments included."""


def against_apache(records: int, rounds: int, progress: Progress) -> list[Section]:
    made: list[Section] = []
    with tempfile.TemporaryDirectory(prefix="aiokq-bench-tls-") as directory:
        pki = Pki()
        store = pki.issue(uses_rsa=True).write(Path(directory), "node")
        authority = Path(directory) / "authority.pem"
        authority.write_text(pki.trusted)
        memory = servers.memory_directory(LOG_BYTES)
        if memory is None:
            progress(f"{servers.MEMORY} has too little room: the logs are on the disk")
        with servers.apache(
            parent=memory,
            listeners={"TLS": "SSL"},
            ssl_keystore_type="PEM",
            ssl_keystore_location=str(store),
            log_segment_bytes=str(RETAINED_BYTES // 4),
            log_retention_bytes=str(RETAINED_BYTES),
            log_retention_check_interval_ms="1000",
            log_segment_delete_delay_ms="1000",
        ) as server:
            tls = f"127.0.0.1:{server.ports['TLS']}"
            _warm_up(server.bootstrap, tls, str(authority), progress)
            for value_bytes in (100, 1_000):
                count = records if value_bytes == 100 else records // 4
                for consume in (False, True):
                    made.append(
                        _section(
                            server.bootstrap,
                            tls,
                            str(authority),
                            value_bytes,
                            count,
                            rounds,
                            progress,
                            consume=consume,
                            in_memory=memory is not None,
                        )
                    )
    return made


def _section(
    plain: str,
    tls: str,
    authority: str,
    value_bytes: int,
    records: int,
    rounds: int,
    progress: Progress,
    *,
    consume: bool,
    in_memory: bool,
) -> Section:
    verb = "consume" if consume else "produce"
    topic = f"{verb}-{value_bytes}"
    place = "in memory" if in_memory else "on a disk"
    common = ["--topic", topic, "--records", str(records), "--value-bytes", str(value_bytes)]
    over_tls = [*common, "--tls", authority]
    if consume:
        progress(f"filling {topic}")
        _run("produce_confluent", plain, *common)
        shapes = [("async for", "records"), ("batches", "batches")]
    else:
        common += ["--buffer-bytes", str(64 * MIB)]
        over_tls += ["--buffer-bytes", str(64 * MIB)]
        shapes = [("send_nowait", "send_nowait"), ("send_many", "send_many")]
    contenders = [
        Contender("confluent-kafka, TLS", f"{verb}_confluent", ("--bootstrap", tls, *over_tls)),
        Contender("confluent-kafka, plain", f"{verb}_confluent", tuple(common)),
    ]
    for label, shape in shapes:
        contenders += [
            Contender(
                f"aiokq, {label}, TLS",
                f"{verb}_aiokq",
                ("--bootstrap", tls, *over_tls, "--shape", shape),
            ),
            Contender(f"aiokq, {label}, plain", f"{verb}_aiokq", (*common, "--shape", shape)),
        ]
    section = Section(
        f"tls-{verb}-{value_bytes}",
        f"{verb.title()} over TLS, Apache Kafka, {value_bytes:,}-byte values",
        f"10-byte keys, {records:,} records, 4 partitions, TLS 1.3, RSA 2048; Apache Kafka warmed "
        f"up by {WARM_UP_BYTES / 1e9:g} GB over TLS, its log {place}. "
        f"Median of {rounds} interleaved rounds.",
        COLUMNS,
        unit="million records/s",
    )
    results = run_rounds(contenders, plain, rounds, progress=progress)
    rates = {result.label: result.rate for result in results}
    for result in results:
        base = result.label.rpartition(",")[0] + ", plain"
        section.rows.append(
            [
                result.label,
                f"{result.rate:,.0f}" if not result.failure else f"failed: {result.failure}",
                f"{result.rate / rates[contenders[0].label]:.2f}",
                f"{result.rate / rates[base]:.2f}",
                f"{result.cpu_ns_per_record:,.0f}",
                f"{100 * result.spread:.0f} %",
            ]
        )
        section.bars.append((result.label, result.rate / 1e6))
    return section


def _warm_up(plain: str, tls: str, authority: str, progress: Progress) -> None:
    progress("warming up")
    records = WARM_UP_BYTES // 2 // 1_000
    common = ["--topic", "warm-up", "--records", str(records), "--value-bytes", "1000"]
    _run("produce_confluent", tls, *common, "--tls", authority)
    for _ in range(2):
        _run("consume_confluent", tls, *common, "--tls", authority)


def _run(module: str, bootstrap: str, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", f"benchmarks.contenders.{module}"]
        + ["--bootstrap", bootstrap, *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
    )
