"""Kafka's broker settings, compared with Kafka's own classes: names, types, rules of listeners."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aiokq.broker.config.listeners import configured_listeners
from aiokq.broker.config.roles import check_quorum, check_roles, configured_node_id
from aiokq.broker.config.settings import broker_settings
from aiokq.core.errors import ConfigError
from tests.peers.apache_kafka import java_command

ROOT = Path(__file__).resolve().parents[3]
LIBS = ROOT / ".cache/kafka/libs"

pytestmark = pytest.mark.kafka

MAP = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT"
A = f"{MAP};controller.listener.names=C;inter.broker.listener.name=A"
CASES = (
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
    "listeners=plaintext://:9092,CONTROLLER://:9093",
    "listeners= PLAINTEXT://:9092 , CONTROLLER://:9093",
    "listeners=PLAINTEXT://:9092,plaintext://:9094,CONTROLLER://:9093",
    "listeners=PLAINTEXT://:9092,,CONTROLLER://:9093",
    "listeners=PLAINTEXT://a b:9092,CONTROLLER://:9093",
    "listeners=PLAINTEXT:9092,CONTROLLER://:9093",
    "listeners=://:9092,CONTROLLER://:9093",
    "listeners=PLAINTEXT://[::1]:9092,CONTROLLER://:9093",
    "listeners=PLAINTEXT://::1:9092,CONTROLLER://:9093",
    "listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093",
    "listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093;advertised.listeners=PLAINTEXT://h:1",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;advertised.listeners=OTHER://h:9092",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;advertised.listeners=PLAINTEXT://h",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;advertised.listeners=PLAINTEXT://h:0",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;advertised.listeners=PLAINTEXT://:1",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;inter.broker.listener.name=CONTROLLER",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;early.start.listeners=FOO",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;early.start.listeners=PLAINTEXT",
    "listeners=CONTROLLER://:9093",
    "listeners=PLAINTEXT://:9092",
    f"listeners=A://127.0.0.1:1,B://127.0.0.1:2,C://127.0.0.1:3;{A}",
    f"listeners=A://127.0.0.1:1,B://127.0.0.1:2,C://127.0.0.1:3;{A};advertised.listeners=A://h:1",
    f"listeners=A://127.0.0.1:1,B://127.0.0.1:2,C://127.0.0.1:3;{A};advertised.listeners=B://h:1",
    f"listeners=A://:1,B://:2,C://:3;{A};advertised.listeners=A://h:1,B://h:1,C://h:1",
    f"listeners=A://127.0.0.1:1,B://[::1]:1,C://127.0.0.1:3;{A}",
    f"listeners=A://127.0.0.1:1,B://127.0.0.2:1,C://127.0.0.1:3;{A}",
    f"listeners=A://[::1]:1,B://[::2]:1,C://127.0.0.1:3;{A}",
    f"listeners=A://localhost:1,B://[::1]:1,C://127.0.0.1:3;{A}",
    f"listeners=A://:1,B://[::1]:1,C://127.0.0.1:3;{A}",
    f"listeners=A://127.0.0.1:1,B://[::1]:1,C://127.0.0.2:1;{A}",
    f"listeners=A://:0,B://:0,C://:0;{A}",
    f"listeners=A://:1,C://:3;{MAP};controller.listener.names=C",
    f"listeners=A://:1,C://:3;{A};security.inter.broker.protocol=PLAINTEXT",
    f"listeners=A://:1,C://:3;{MAP};controller.listener.names=C;inter.broker.listener.name=D",
    f"listeners=A://:1,D://:2,C://:3;{A}",
    "listeners=A://:1,C://:3;listener.security.protocol.map=a:plaintext,c:PLAINTEXT;"
    "controller.listener.names=C;inter.broker.listener.name=a",
    "listeners=A://:1,C://:3;listener.security.protocol.map=A:TLS,C:PLAINTEXT;"
    "controller.listener.names=C;inter.broker.listener.name=A",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;broker.id=2",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;broker.id=1",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;controller.quorum.voters=2@h:9093",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;controller.quorum.voters=h:9093",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;controller.quorum.voters=1@localhost:19093",
    "listeners=PLAINTEXT://:9092;controller.listener.names=",
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093;process.roles=controller",
)


def with_defaults(case: str) -> dict[str, str]:
    """Add the settings that every case needs."""
    given = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
    }
    for part in case.split(";"):
        name, _, value = part.partition("=")
        given[name] = value
    return given


def accepted_here(given: dict[str, str]) -> bool:
    try:
        settings = broker_settings(given)
        check_roles(settings)
        check_quorum(settings, configured_listeners(settings), configured_node_id(settings))
    except ConfigError:
        return False
    return True


@pytest.fixture(autouse=True)
def _jars():
    if shutil.which("java") is None or not any(LIBS.glob("kafka_2.13-*.jar")):
        pytest.skip("needs java and the jars that `make kafka` fetches")


def test_the_names_are_what_kafkas_jar_says():
    """A missing name would reject a setting that Kafka has."""
    done = subprocess.run(
        [sys.executable, "tools/generate_kafka_settings.py", f"{LIBS}/*", "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_listeners_are_accepted_and_refused_as_by_kafka():
    """aiokq and Kafka accept the same settings files and reject the same mistakes."""
    lines = ["\t".join(f"{n}={v}" for n, v in with_defaults(case).items()) for case in CASES]
    done = subprocess.run(
        java_command(str(ROOT / "tests/peers/JavaBrokerConfig.java")),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
    )
    answers = [line for line in done.stdout.splitlines() if line[:7] in ("ACCEPT ", "REFUSE ")]
    assert len(answers) == len(CASES), done.stderr
    differing = [
        (case, answer)
        for case, answer in zip(CASES, answers, strict=True)
        if answer.startswith("ACCEPT") != accepted_here(with_defaults(case))
    ]
    assert differing == []
    assert 10 < sum(answer.startswith("ACCEPT") for answer in answers) < len(CASES) - 10
