"""Options of Kafka's command-line tools and their counterparts in `aiokq`.

People who know kafka-console-consumer or kafka-topics try the options of these tools first. Options
that have the same name in `aiokq` are not listed. Tests: tests/unit/cli/test_kafka_options.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["KAFKA_OPTIONS", "instead_of"]

_SETTINGS: Final = "put the setting into the file of --config, or into a variable (KAFKA_LINGER_MS)"
_TOPIC: Final = "the topic is an argument: aiokq {command} TOPIC"
_GROUP: Final = "the group is an argument: aiokq {command} GROUP"
_WHAT_IS_PRINTED: Final = "use --keys, --headers, --timestamps, --offsets and --separator"
_FORMAT: Final = "use --format text, json or raw"
_LINE: Final = "use --key-separator, --header and --null-marker"

_ACL: Final = "write the ACL as a line: aiokq {command} 'User:alice Allow Read Topic:orders'"

_OF_AN_ACL: Final = (
    *("--allow-principal", "--deny-principal", "--allow-host", "--deny-host", "--operation"),
    *("--topic", "--group", "--cluster", "--transactional-id", "--delegation-token"),
    *("--resource-pattern-type", "--producer", "--consumer", "--idempotent"),
)

_ANY: Final = {
    "--bootstrap-server": "use --bootstrap-servers",
    "--broker-list": "use --bootstrap-servers",
    "--command-config": "use --config",
    "--zookeeper": "use --bootstrap-servers: brokers are asked, not ZooKeeper",
}

KAFKA_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "consume": {
        "--topic": _TOPIC,
        "--include": "topics are arguments: aiokq consume TOPIC TOPIC",
        "--whitelist": "topics are arguments: aiokq consume TOPIC TOPIC",
        "--from-beginning": "use --from beginning, which is the default",
        "--offset": "use --from",
        "--timeout-ms": "use --until-end, which ends after the records that exist at the start",
        "--isolation-level": "use --read-committed",
        "--skip-message-on-error": "leave it out: values are printed unchanged",
        "--property": _WHAT_IS_PRINTED,
        "--formatter-property": _WHAT_IS_PRINTED,
        "--formatter": _FORMAT,
        "--key-deserializer": _FORMAT,
        "--value-deserializer": _FORMAT,
        "--consumer.config": "use --config",
        "--consumer-config": "use --config",
        "--consumer-property": _SETTINGS,
        "--command-property": _SETTINGS,
    },
    "produce": {
        "--topic": _TOPIC,
        "--compression-codec": "use --compression-type",
        "--property": _LINE,
        "--reader-property": _LINE,
        "--producer.config": "use --config",
        "--producer-config": "use --config",
        "--producer-property": _SETTINGS,
        "--command-property": _SETTINGS,
        "--request-required-acks": _SETTINGS,
        "--request-timeout-ms": _SETTINGS,
        "--batch-size": _SETTINGS,
        "--max-memory-bytes": _SETTINGS,
        "--timeout": _SETTINGS,
        "--sync": "leave it out: produce ends when all records are acknowledged",
    },
    "topics": {
        "--topic": "the topic is an argument: aiokq topics describe TOPIC",
        "--list": "use aiokq topics list",
        "--describe": "use aiokq topics describe TOPIC",
        "--create": "use aiokq topics create TOPIC",
        "--delete": "use aiokq topics delete TOPIC",
        "--alter": "use aiokq topics alter TOPIC",
    },
    "topics list": {"--exclude-internal": "leave it out: it is the default; see --internal"},
    "topics describe": {"--topic": _TOPIC},
    "topics create": {"--topic": _TOPIC},
    "topics delete": {"--topic": _TOPIC},
    "topics alter": {
        "--topic": _TOPIC,
        "--add-config": "use --set",
        "--delete-config": "use --delete",
    },
    "offsets": {
        "--topic": _TOPIC,
        "--time": "use --at",
    },
    "groups": {
        "--group": "the group is an argument: aiokq groups describe GROUP",
        "--all-groups": "use aiokq groups list for their names",
        "--list": "use aiokq groups list",
        "--describe": "use aiokq groups describe GROUP",
        "--delete": "use aiokq groups delete GROUP",
        "--delete-offsets": "use aiokq groups delete GROUP --topic TOPIC",
        "--reset-offsets": "use aiokq groups reset GROUP",
    },
    "groups describe": {
        "--group": _GROUP,
        "--offsets": "leave it out: it is the default",
        "--state": "leave it out: the first line has the state",
    },
    "groups reset": {"--group": _GROUP},
    "groups rewind": {"--group": _GROUP},
    "groups delete": {"--group": _GROUP},
    "groups alter": {
        "--group": _GROUP,
        "--add-config": "use --set",
        "--delete-config": "use --delete",
    },
    "groups configs": {"--group": _GROUP},
    "acls": {
        "--list": "use aiokq acls list",
        "--add": "use aiokq acls add",
        "--remove": "use aiokq acls remove",
    },
    "acls list": {
        "--topic": "use --of Topic:NAME, or --covering Topic:NAME",
        "--group": "use --of Group:NAME, or --covering Group:NAME",
        "--resource-pattern-type": "use --covering for match, or a name that ends in * with --of",
    },
    "acls add": dict.fromkeys(_OF_AN_ACL, _ACL),
    "acls remove": dict.fromkeys(_OF_AN_ACL, _ACL),
    "log": {"--files": "files are arguments: aiokq log dump PATH"},
    "log dump": {
        "--files": "files are arguments: aiokq log dump PATH",
        "--print-data-log": "use --records",
        "--deep-iteration": "use --records",
        "--index-sanity-check": "use aiokq log verify",
        "--verify-index-only": "use aiokq log verify",
    },
    "log-dirs": {"--describe": "leave it out: aiokq log-dirs describes"},
}
"""For each command of `aiokq`, a map from options of Kafka's tools to advice."""


def instead_of(command: str, option: str) -> str | None:
    """Return the advice for an option of Kafka's tools; None for any other option.

    Args:
        command: the words after `aiokq`, such as `topics create`.
        option: as typed, without a value.
    """
    instead = KAFKA_OPTIONS.get(command, {}).get(option) or _ANY.get(option)
    return None if instead is None else instead.format(command=command)
