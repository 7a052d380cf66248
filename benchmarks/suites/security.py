"""What the beginning of a connection costs: TLS handshakes and logins, beside Apache Kafka.

Also what plain clients lose while strangers begin connections (`benchmarks.storms`).
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aiokq import Admin, ScramUpsertion
from benchmarks import servers, storms
from benchmarks.report import Section
from benchmarks.rounds import Contender, Result, run_once
from benchmarks.servers import Server
from benchmarks.suites.clients import Progress
from tests.peers.pki import Pki
from tests.peers.ports import free_ports

COLUMNS = ("broker", "per second", "x Apache Kafka", "CPU of the broker, us", "+-")

USER, PASSWORD = "bench", "bench-secret"

AIOKQ, APACHE = "aiokq", "Apache Kafka"

WARM_UP_SECONDS = 6.0
"""Seconds of load before the first round; Java compiles what is used often."""

STORM_ROUNDS = 3


def security(rounds: int, progress: Progress) -> list[Section]:
    """Measure handshakes and logins, then plain clients beside storms."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aiokq-bench-")))
        pki = Pki()
        authority = directory / "authority.pem"
        authority.write_text(pki.trusted)
        stores = {
            "RSA": pki.issue(uses_rsa=True).write(directory, "rsa"),
            "EC": pki.issue().write(directory, "ec"),
        }
        progress("starting the brokers")
        both = {
            AIOKQ: stack.enter_context(_aiokq(stores)),
            APACHE: stack.enter_context(_apache(stores)),
        }
        for server in both.values():
            asyncio.run(_add_user(server.bootstrap))
        login = ("--user", USER, "--password", PASSWORD)
        made = []
        for name, title, listener, arguments in (
            ("tls-handshakes-rsa", "TLS handshakes, RSA 2048", "RSA", ("--tls", str(authority))),
            ("tls-handshakes-ec", "TLS handshakes, P-256", "EC", ("--tls", str(authority))),
            ("scram-logins", "Logins by SCRAM-SHA-256", "SCRAM", login),
        ):
            progress(f"warming up: {title}")
            warm_up = ("--seconds", str(WARM_UP_SECONDS))
            _run(both, listener, (*arguments, *warm_up), 1, lambda _: None)
            results, cpu = _run(both, listener, arguments, rounds, progress)
            made.append(_section(name, title, rounds, results, cpu))
    return [*made, *storms.sections(min(rounds, STORM_ROUNDS), progress)]


def _run(
    both: dict[str, Server],
    listener: str,
    arguments: Sequence[str],
    rounds: int,
    progress: Progress,
) -> tuple[list[Result], dict[str, float]]:
    """Return the results, and each broker's seconds of CPU for a connection."""
    seconds, counts = dict.fromkeys(both, 0.0), dict.fromkeys(both, 0.0)
    results = {label: Result(label) for label in both}
    for number in range(rounds):
        for label in both if number % 2 else reversed(both):
            server = both[label]
            address = f"127.0.0.1:{server.ports[listener]}"
            before = server.cpu_seconds
            progress(f"round {number + 1} of {rounds}: {label}, {listener}")
            try:
                measured = run_once(
                    Contender(label, "connects", (*arguments,)), address, timeout=60
                )
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                results[label].failure = str(error)
                continue
            seconds[label] += server.cpu_seconds - before
            counts[label] += measured["all"]
            results[label].rates.append(measured["records"] / measured["seconds"])
    cpu = {label: seconds[label] / counts[label] if counts[label] else 0.0 for label in both}
    return list(results.values()), cpu


def _section(
    name: str, title: str, rounds: int, results: Sequence[Result], cpu: dict[str, float]
) -> Section:
    section = Section(
        name,
        f"{title} per second",
        "Eight connections at a time from one process, each new, with one request; Apache Kafka "
        f"after {WARM_UP_SECONDS:g} s of the same load. Median of {rounds} rounds in turns.",
        COLUMNS,
        unit="per second",
    )
    rates = {result.label: result.rate for result in results}
    for result in results:
        section.rows.append(
            [
                result.label,
                f"{result.rate:,.0f}" if not result.failure else f"failed: {result.failure}",
                f"{result.rate / rates[APACHE]:.2f}",
                f"{1e6 * cpu[result.label]:,.0f}",
                f"{100 * result.spread:.0f} %",
            ]
        )
        section.bars.append((result.label, result.rate))
    return section


@contextmanager
def _aiokq(stores: dict[str, Path]) -> Iterator[Server]:
    names = (*stores, "SCRAM")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    listeners = ["PLAINTEXT://127.0.0.1:0"]
    listeners += [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    protocols = dict.fromkeys(stores, "SSL") | {"SCRAM": "SASL_PLAINTEXT"}
    settings = {
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}"
            for name, protocol in {"PLAINTEXT": "PLAINTEXT", **protocols}.items()
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    for name, store in stores.items():
        settings[f"listener.name.{name.lower()}.ssl.keystore.type"] = "PEM"
        settings[f"listener.name.{name.lower()}.ssl.keystore.location"] = str(store)
    arguments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with servers.embedded(*arguments) as server:
        yield Server(server.bootstrap, server.pid, server.start_seconds, server.directory, ports)


@contextmanager
def _apache(stores: dict[str, Path]) -> Iterator[Server]:
    properties = {
        "listener_name_scram_sasl_enabled_mechanisms": "SCRAM-SHA-256",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    for name, store in stores.items():
        properties[f"listener_name_{name.lower()}_ssl_keystore_type"] = "PEM"
        properties[f"listener_name_{name.lower()}_ssl_keystore_location"] = str(store)
    listeners = dict.fromkeys(stores, "SSL") | {"SCRAM": "SASL_PLAINTEXT"}
    with servers.apache(listeners=listeners, **properties) as server:  # type: ignore[arg-type]
        yield server


async def _add_user(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.alter_user_scram_credentials(
            ScramUpsertion(USER, PASSWORD, mechanism="SCRAM-SHA-256"), raise_errors=True
        )
