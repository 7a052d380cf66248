"""Fixtures of the command line: `cli` with a broker in memory, `alone` without a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from aiokq.cli.session import Session
from tests.unit.cli.harness import CommandLine, SimulatedSession


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def cli(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Iterator[CommandLine]:
    with SimulatedSession() as session:
        yield CommandLine(session, capsysbinary, monkeypatch)


@pytest.fixture
def alone(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """A command line without a cluster, for arguments that are refused first."""

    class NoCluster(Session):
        def run(self, main):
            main.close()
            raise AssertionError("a cluster was looked for")

    return CommandLine(NoCluster(), capsysbinary, monkeypatch)
