"""Consumer offsets as Kafka's old consumers kept them in ZooKeeper: read from a dump, or live.

Owns the formats. What is committed of them, and whether, is group_import.py's.

A dump is text, one node a line: the path, then a tab or a colon, then the value; empty lines and
such that begin with ``#`` are skipped. That is also what ``kafka.tools.ExportZkOffsets`` wrote::

    /consumers/billing/offsets/orders/0:286894308

Or it is JSON: an object of paths, each with its value, or with an object that has it as
``content``, as ``cp zk://... json://...`` of zk-shell writes it.

Source: Kafka 0.8-2.x `ExportZkOffsets.scala`, `ZkUtils.scala`; zk-shell `copy.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aiokq.core.errors import ConfigError, ConnectionLost, KafkaError
from aiokq.core.types import TopicPartition

__all__ = ["ZooKeeperOffsets", "read_dump", "read_zookeeper"]

OFFSET_PATH: Final = re.compile(
    r"(?:/[^\t]*)?/consumers/(?P<group>[^/]+)/offsets/(?P<topic>[^/]+)/"
    r"(?:(?P<broker>[0-9]+)-)?(?P<partition>[0-9]+)"
)
LINE: Final = re.compile(r"(?P<path>/.*?)(?:\t|\s*:\s*(?=[^:/\t]*$))(?P<value>.*)")
OFFSET: Final = re.compile(r"[0-9]{1,19}")
MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1


@dataclass(slots=True)
class ZooKeeperOffsets:
    """What was found.

    Attributes:
        groups: by group the offset of the next record to read, per partition.
        problems: what looks like an offset and is none, a line of text each.
        others: how many nodes were about something else.
    """

    groups: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    others: int = 0

    def only(self, groups: Iterable[str]) -> ZooKeeperOffsets:
        """Those of these groups."""
        wanted = {name: self.groups[name] for name in groups if name in self.groups}
        return ZooKeeperOffsets(wanted, self.problems, self.others)


class _Node(NamedTuple):
    where: str
    path: str
    value: str


def read_dump(text: str) -> ZooKeeperOffsets:
    """The offsets in a dump, in either format.

    Raises:
        ConfigError: it begins as JSON and is none, or holds something else than paths.
    """
    return _collect(_json_nodes(text) if text.lstrip()[:1] in ("{", "[") else _text_nodes(text))


def _text_nodes(text: str) -> Iterator[_Node]:
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = LINE.fullmatch(stripped)
        if match is None:
            yield _Node(f"line {number}", stripped, "")
        else:
            yield _Node(f"line {number}", match["path"].rstrip(), match["value"].strip())


def _json_nodes(text: str) -> Iterator[_Node]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the dump begins as JSON and is none: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError("the dump is JSON, but no object of paths")
    for path, node in tree.items():
        value = node.get("content") if isinstance(node, dict) else node
        if isinstance(value, str | int):
            yield _Node(path, path, str(value).strip())
        else:
            yield _Node(path, path, "")


def _collect(nodes: Iterable[_Node]) -> ZooKeeperOffsets:
    found = ZooKeeperOffsets()
    brokers: dict[tuple[str, TopicPartition], str] = {}
    for where, path, value in nodes:
        match = OFFSET_PATH.fullmatch(path)
        if match is None:
            found.others += 1
            continue
        group_id, broker = match["group"], match["broker"] or ""
        tp = TopicPartition(match["topic"], int(match["partition"]))
        if tp.partition > MAX_PARTITION:
            found.problems.append(f"{where}: {tp} of group {group_id!r} is no partition")
            continue
        if not OFFSET.fullmatch(value) or int(value) > MAX_OFFSET:
            found.problems.append(f"{where}: {value!r} is no offset of {tp} of group {group_id!r}")
            continue
        # Kafka 0.7 numbered partitions on each broker anew; `0-3` is partition 3 of broker 0.
        if brokers.setdefault((group_id, tp), broker) != broker:
            found.problems.append(
                f"{where}: {tp} of group {group_id!r} is there for several brokers: offsets of "
                "Kafka 0.7 have no counterpart in later versions"
            )
            continue
        found.groups.setdefault(group_id, {})[tp] = int(value)
    found.groups = {
        group_id: dict(sorted(offsets.items()))
        for group_id, offsets in sorted(found.groups.items())
    }
    return found


# -- a live ZooKeeper


def read_zookeeper(
    hosts: str, *, groups: Iterable[str] | None = None, timeout: float = 15.0
) -> ZooKeeperOffsets:
    """The offsets in a ZooKeeper. Blocks: call it before the loop runs, or in a thread.

    Args:
        hosts: "host:port", several comma separated, a chroot at the end ("zk1:2181/kafka").
        groups: to read; None for all.
        timeout: seconds to connect.

    Raises:
        ConfigError: `kazoo`, the extra "zookeeper", is not installed.
        ConnectionLost: no ZooKeeper answered in time.
        KafkaError: it refused.
    """
    try:
        from kazoo.client import KazooClient  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from kazoo.exceptions import KazooException, NoNodeError  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise ConfigError(
            "reading a live ZooKeeper takes kazoo: pip install 'aiokq[zookeeper]'"
        ) from None

    client = KazooClient(hosts=hosts, timeout=timeout, read_only=True)

    def children(path: str) -> list[str]:
        try:
            return sorted(client.get_children(path))
        except NoNodeError:  # gone since its parent was listed, or never there
            return []

    def nodes() -> Iterator[_Node]:
        for group_id in children("/consumers") if groups is None else groups:
            root = f"/consumers/{group_id}/offsets"
            for topic in children(root):
                for partition in children(f"{root}/{topic}"):
                    path = f"{root}/{topic}/{partition}"
                    try:
                        value, _ = client.get(path)
                    except NoNodeError:
                        continue
                    yield _Node(path, path, (value or b"").decode("utf-8", "replace").strip())

    try:
        client.start(timeout=timeout)
    except KazooTimeoutError as error:
        raise ConnectionLost(
            f"no ZooKeeper answers at {hosts} within {timeout:.3g} s", may_have_been_written=False
        ) from error
    try:
        return _collect(nodes())
    except KazooException as error:
        raise KafkaError(f"ZooKeeper at {hosts}: {error!r}") from error
    finally:
        client.stop()
        client.close()
