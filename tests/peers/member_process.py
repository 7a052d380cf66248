"""Group members of any client, also Java, as processes that tests start, watch, stop and kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.peers.apache_kafka import ROOT, java_command
from tests.peers.group_member import HEARTBEAT_MS, SERVER_ASSIGNORS

_JAVA = "org.apache.kafka.clients.consumer"
JAVA_ASSIGNORS = {
    "range": f"{_JAVA}.RangeAssignor",
    "roundrobin": f"{_JAVA}.RoundRobinAssignor",
    "sticky": f"{_JAVA}.StickyAssignor",
    "cooperative-sticky": f"{_JAVA}.CooperativeStickyAssignor",
}


class MemberProcess:
    """One member process, with the partitions and records that it reported.

    Attributes:
        owned: partitions of the topic that it has now.
        received: numbers in the records that it received, in that order.
    """

    def __init__(
        self, make: str, servers: str, topic: str, group: str, assignor: str, session_ms: int
    ) -> None:
        self.make = make
        self.owned: set[int] = set()
        self.received: list[int] = []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._settings = tempfile.NamedTemporaryFile("w", suffix=".properties")  # noqa: SIM115
        if make == "java":
            command = self._java(servers, topic, group, assignor, session_ms)
        else:
            module = "tests.peers.group_member"
            command = [sys.executable, "-W", "ignore", "-m", module, make, servers, topic, group]
            command += [assignor, str(session_ms)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, text=True, cwd=ROOT
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _java(
        self, servers: str, topic: str, group: str, assignor: str, session_ms: int
    ) -> list[str]:
        """Return the command of VerifiableConsumer, which commits after every poll."""
        arguments = ["--bootstrap-server", servers, "--topic", topic, "--group-id", group]
        arguments += ["--verbose", "--command-config", self._settings.name]
        if assignor in SERVER_ASSIGNORS:
            arguments += ["--group-protocol", "consumer"]
            arguments += ["--group-remote-assignor", SERVER_ASSIGNORS[assignor]]
        else:
            arguments += ["--assignment-strategy", JAVA_ASSIGNORS[assignor]]
            arguments += ["--session-timeout", str(session_ms)]
            Path(self._settings.name).write_text(f"heartbeat.interval.ms={HEARTBEAT_MS}\n")
        return java_command("org.apache.kafka.tools.VerifiableConsumer", *arguments)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            partitions = {p["partition"] for p in said.get("partitions", ()) if "partition" in p}
            match said.get("name"):
                case None:
                    self.owned = set(said.get("owned", self.owned))
                    self.received += said.get("received", ())
                case "partitions_assigned":
                    self.owned = self.owned | partitions
                case "partitions_revoked":
                    self.owned = self.owned - partitions
                case "record_data":
                    self.received.append(int(said["value"]))

    def __repr__(self) -> str:
        code = self.process.poll()
        end = "" if code is None else f" ended with {code}: {self.complaints()}"
        return f"<{self.make} owns {sorted(self.owned)}, got {len(self.received)}{end}>"

    def complaints(self) -> str:
        """Return the end of the process's stderr."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-2000:]

    def leave(self) -> None:
        """Send SIGTERM; the member leaves its group, and all its output is read."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL; the group is not notified."""
        self._end(signal.SIGKILL)

    def _end(self, signal_number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(5)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self._errors.close()
            self._settings.close()
            self.owned = set()
