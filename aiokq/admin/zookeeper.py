"""Offsets that Kafka's old consumers stored in ZooKeeper, read from a dump or a running ensemble.

A text dump has one node per line: path, tab or colon, value. Empty lines and lines that begin with
``#`` are skipped. ``kafka.tools.ExportZkOffsets`` wrote this format::

    /consumers/billing/offsets/orders/0:286894308

A JSON dump is an object whose keys are paths. The value of a path is the node's value, or an object
that has the node's value as ``content``, as written by zk-shell's ``cp zk://... json://...``.

Source: Kafka 0.8-1.1 `ExportZkOffsets.scala`, `ZkUtils.scala`; zk-shell `copy.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from aiokq.core import limits
from aiokq.core.errors import ConfigError, ConnectionLost, KafkaError
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.numbers import parse_number
from aiokq.core.types import TopicPartition

__all__ = ["ZooKeeperOffsets", "read_dump", "read_zookeeper"]

OFFSET_PATH: Final = re.compile(
    r"(?:/[^\t]*)?/consumers/(?P<group>[^/]+)/offsets/(?P<topic>[^/]+)/"
    r"(?:(?P<broker>[0-9]+)-)?(?P<partition>[0-9]+)"
)
LINE: Final = re.compile(r"(?P<path>/.*?)(?:\t|\s*:\s*(?=[^:/\t]*$))(?P<value>.*)")


@dataclass(slots=True)
class ZooKeeperOffsets:
    """The offsets that a dump or ZooKeeper contains.

    Attributes:
        groups: for each group, a map of partition to the next offset to consume.
        problems: a message for each node that should hold an offset but does not.
        others: number of nodes whose path is not the path of an offset.
    """

    groups: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    others: int = 0

    def only(self, groups: Iterable[str]) -> ZooKeeperOffsets:
        """Return the offsets of these groups only."""
        wanted = {name: self.groups[name] for name in groups if name in self.groups}
        return ZooKeeperOffsets(wanted, self.problems, self.others)


class _Node(NamedTuple):
    where: str
    path: str
    value: str


def read_dump(text: str) -> ZooKeeperOffsets:
    """Read the offsets of a dump in text or JSON format.

    Raises:
        ConfigError: the text begins like JSON, but is not valid JSON, or not an object whose keys
            are paths.
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
        raise ConfigError(f"the dump begins like JSON but is not valid JSON: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError("the dump is JSON, but not an object whose keys are paths")
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
        try:
            tp = TopicPartition(match["topic"], parse_number(match["partition"], limits.INT32_MAX))
        except ValueError:
            found.problems.append(
                f"{where}: {match['topic']}-{match['partition'][:40]} of group {group_id!r} is "
                "not a partition"
            )
            continue
        try:
            offset = parse_number(value, limits.INT64_MAX)
        except ValueError:
            found.problems.append(
                f"{where}: {value[:40]!r} is not an offset of {tp} of group {group_id!r}"
            )
            continue
        # Kafka 0.7 numbered partitions per broker; `0-3` is partition 3 of broker 0.
        if brokers.setdefault((group_id, tp), broker) != broker:
            found.problems.append(
                f"{where}: {tp} of group {group_id!r} has offsets on several brokers: such "
                "offsets of Kafka 0.7 have no counterpart in later versions"
            )
            continue
        found.groups.setdefault(group_id, {})[tp] = offset
    found.groups = {
        group_id: dict(sorted(offsets.items()))
        for group_id, offsets in sorted(found.groups.items())
    }
    return found


def read_zookeeper(
    hosts: str, *, groups: Iterable[str] | None = None, timeout: float = 15.0
) -> ZooKeeperOffsets:
    """Read the offsets from ZooKeeper. Blocks: call it before the loop runs, or in a thread.

    Args:
        hosts: "host:port", several comma separated, with an optional chroot ("zk1:2181/kafka").
        groups: groups to read; None for all.
        timeout: seconds to connect.

    Raises:
        ConfigError: `kazoo`, the extra "zookeeper", is not installed.
        ConnectionLost: no ZooKeeper server responded in time.
        KafkaError: a request to ZooKeeper failed.
    """
    try:
        from kazoo.client import KazooClient  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from kazoo.exceptions import KazooException, NoNodeError  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise ConfigError(
            "reading a live ZooKeeper requires kazoo: pip install 'aiokq[zookeeper]'"
        ) from None

    client = KazooClient(hosts=hosts, timeout=timeout, read_only=True)

    def children(path: str) -> list[str]:
        try:
            return sorted(client.get_children(path))
        except NoNodeError:  # the node was removed after the listing, or never existed
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
