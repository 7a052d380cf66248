"""librdkafka's mock cluster as a process of its own, with fault injection.

As a program it prints its bootstrap address, and then runs one JSON command per line until its
standard input is closed. The faults are librdkafka's C functions `rd_kafka_mock_*`, which are in
confluent-kafka's library but have no Python wrapper.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class MockCluster(str):
    """The bootstrap servers of a running mock cluster, with methods that inject faults.

    Error codes are Kafka's; -195 closes the connection instead of answering, -185 never answers.
    """

    TRANSPORT = -195
    """RD_KAFKA_RESP_ERR__TRANSPORT."""

    _process: subprocess.Popen[str]

    def push_errors(self, api_key: int, *codes: int) -> None:
        """Make the next requests of an API fail at any broker, one per code; 0 lets one succeed."""
        self._tell("push_errors", api_key, *codes)

    def push_broker_errors(self, node_id: int, api_key: int, *errors: tuple[int, int]) -> None:
        """Make the next requests fail at one broker; pairs of error code and delay (ms)."""
        self._tell("push_broker_errors", node_id, api_key, *errors)

    def clear_errors(self, api_key: int) -> None:
        """Forget the remaining pushed errors of an API."""
        self._tell("clear_errors", api_key)

    def topic_error(self, topic: str, code: int) -> None:
        """Set the error of a topic in Metadata; 0 removes it."""
        self._tell("topic_error", topic, code)

    def create_topic(self, topic: str, partitions: int, replication_factor: int = 1) -> None:
        self._tell("create_topic", topic, partitions, replication_factor)

    def set_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make a node the leader of a partition; -1 leaves it without a leader."""
        self._tell("set_leader", topic, partition, node_id)

    def set_follower(self, topic: str, partition: int, node_id: int) -> None:
        """Set the replica that fetches are referred to (KIP-392)."""
        self._tell("set_follower", topic, partition, node_id)

    def set_down(self, node_id: int) -> None:
        """Close a broker's connections and refuse new ones."""
        self._tell("set_down", node_id)

    def set_up(self, node_id: int) -> None:
        self._tell("set_up", node_id)

    def set_rtt(self, node_id: int, milliseconds: int) -> None:
        """Set the delay of each response; 0 for none."""
        self._tell("set_rtt", node_id, milliseconds)

    def set_api_version(self, api_key: int, oldest: int, newest: int) -> None:
        """Set the versions that brokers advertise; -1 for both hides the API."""
        self._tell("set_api_version", api_key, oldest, newest)

    def _tell(self, name: str, *arguments: object) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([name, *arguments]) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline().strip()
        if answer != "ok":
            raise RuntimeError(f"{name}{arguments}: {answer or 'the mock cluster died'}")


@contextmanager
def mock_cluster(brokers: int = 1) -> Iterator[MockCluster]:
    """Run a mock cluster while the block runs; yield its bootstrap servers.

    Topics are created on first use, with four partitions.
    """
    process = subprocess.Popen(
        [sys.executable, __file__, str(brokers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        cluster = MockCluster(process.stdout.readline().strip())
        cluster._process = process
        yield cluster
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


# -- The process


def serve(brokers: int) -> None:
    import confluent_kafka

    site = Path(confluent_kafka.__file__).parent.parent
    [path] = [*site.glob("confluent_kafka.libs/librdkafka*.so*")] or [None]
    if path is None:
        raise RuntimeError("confluent-kafka's wheel has its librdkafka elsewhere")
    library = ctypes.CDLL(str(path))
    pointer = ctypes.c_void_p
    for name, result, arguments in (
        ("rd_kafka_new", pointer, [ctypes.c_int, pointer, ctypes.c_char_p, ctypes.c_size_t]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, ctypes.c_int]),
        ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    why = ctypes.create_string_buffer(512)
    owner = library.rd_kafka_new(0, None, why, len(why))
    if not owner:
        raise RuntimeError(why.value.decode())
    cluster = pointer(library.rd_kafka_mock_cluster_new(owner, brokers))
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        name, *told = json.loads(line)
        print(obey(library, cluster, name, told), flush=True)


def obey(library: Any, cluster: ctypes.c_void_p, name: str, told: list[Any]) -> str:
    """Run a command; return "ok", or librdkafka's error."""
    match name, told:
        case "push_errors", [api_key, *codes]:
            array = (ctypes.c_int * len(codes))(*codes)
            library.rd_kafka_mock_push_request_errors_array(
                cluster, ctypes.c_int16(api_key), ctypes.c_size_t(len(codes)), array
            )
            return "ok"
        case "clear_errors", [api_key]:
            library.rd_kafka_mock_clear_request_errors(cluster, ctypes.c_int16(api_key))
            return "ok"
        case "push_broker_errors", [node_id, api_key, *pairs]:
            flat = [ctypes.c_int(number) for pair in pairs for number in pair]
            code = library.rd_kafka_mock_broker_push_request_error_rtts(
                cluster,
                ctypes.c_int32(node_id),
                ctypes.c_int16(api_key),
                ctypes.c_size_t(len(pairs)),
                *flat,
            )
        case "topic_error", [topic, error]:
            library.rd_kafka_mock_topic_set_error(cluster, topic.encode(), ctypes.c_int(error))
            return "ok"
        case "create_topic", [topic, partitions, factor]:
            code = library.rd_kafka_mock_topic_create(
                cluster, topic.encode(), ctypes.c_int(partitions), ctypes.c_int(factor)
            )
        case ("set_leader" | "set_follower") as what, [topic, partition, node_id]:
            code = getattr(library, f"rd_kafka_mock_partition_{what}")(
                cluster, topic.encode(), ctypes.c_int32(partition), ctypes.c_int32(node_id)
            )
        case ("set_down" | "set_up") as what, [node_id]:
            code = getattr(library, f"rd_kafka_mock_broker_{what}")(
                cluster, ctypes.c_int32(node_id)
            )
        case "set_rtt", [node_id, milliseconds]:
            code = library.rd_kafka_mock_broker_set_rtt(
                cluster, ctypes.c_int32(node_id), ctypes.c_int(milliseconds)
            )
        case "set_api_version", [api_key, oldest, newest]:
            code = library.rd_kafka_mock_set_apiversion(
                cluster, *(ctypes.c_int16(number) for number in (api_key, oldest, newest))
            )
        case _:
            return "not understood"
    return "ok" if not code else f"librdkafka's error {code}"


if __name__ == "__main__":
    serve(int(sys.argv[1]))
