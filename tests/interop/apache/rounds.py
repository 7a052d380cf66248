"""A log directory that aiokq and Apache Kafka use in turn, and what its metadata says.

Each turn makes, changes and removes something of each kind, and returns what the metadata log must
have more and less afterwards. Everything else must stay as it was.
"""

from __future__ import annotations

import asyncio
import copy
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import aiokq
from aiokq import ClientQuotaEntity, QuotaName, ScramDeletion, ScramUpsertion, errors
from aiokq.admin.config_types import ConfigResource, ConfigResourceType
from aiokq.admin.features import FeatureUpdate
from aiokq.admin.topics import NewTopic
from aiokq.broker.log.file_names import CLUSTER_METADATA
from aiokq.broker.metadata.image.features import supported_ranges
from aiokq.broker.metadata.log.metadata_reader import MetadataReader, MetadataState
from aiokq.core.files import OsFiles
from aiokq.fastpath import crc32c
from tests.interop.apache.directories import CODECS, produce
from tests.peers.apache_kafka import SHELL, ApacheKafka, random_id, run_tool
from tests.peers.broker_process import BrokerProcess
from tests.peers.other_clients import PATIENCE

FACTS: Final = {
    "FeatureLevelRecord": ("name",),
    "TopicRecord": ("topic_id",),
    "PartitionRecord": ("topic_id", "partition_id"),
    "ConfigRecord": ("resource_type", "resource_name", "name"),
    "ClientQuotaRecord": ("key", "entity"),
    "AccessControlEntryRecord": ("principal", "resource_name", "operation"),
    "UserScramCredentialRecord": ("name", "mechanism"),
    "DelegationTokenRecord": ("token_id",),
}
"""By record type, the fields that say what a record is about."""

OF_A_START: Final = ("RegisterBrokerRecord", "RegisterControllerRecord", "ProducerIdsRecord")
"""The records that each start or use of a broker replaces."""

OF_LEADERSHIP: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("isr", "leader", "leader_epoch", "partition_epoch"), 0),
    "leader_recovery_state": 0,  # after a kill, Kafka elects the only replica as an unclean leader
    **dict.fromkeys(("eligible_leader_replicas", "last_known_elr")),
}
"""The fields of a partition that starts and stops change, with a value that hides them."""

SETTINGS: Final[Mapping[str, Any]] = {
    "metadata_log_max_record_bytes_between_snapshots": "3000",
    "offsets_topic_num_partitions": "4",
}
ACCESS: Final[Mapping[str, Any]] = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow_everyone_if_no_acl_found": "true",
    "super_users": "User:ANONYMOUS",
}
"""Settings without which a broker manages no ACLs."""

LOGIN: Final = "LOGIN"
"""The listener at which the users that the turns made log in."""
LOGINS: Final[Mapping[str, str]] = {
    "listener_name_login_sasl_enabled_mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    **{
        f"listener_name_login_{mechanism}_sasl_jaas_config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
        for mechanism in ("scram-sha-256", "scram-sha-512")
    },
}
KEPT: Final = "frank"
"""A user with SCRAM-SHA-256 that is never deleted.

Apache Kafka 4.2 loses users if it applies their records together with the removal of others of the
same mechanism (`ScramDelta.apply`): it applies them in the order of their hashes, and a removal
that leaves no user discards those that it adds afterwards. The hash of this name is the first one,
so that no removal leaves no user.
"""
SCRAM_LEVEL: Final = 11
"""The level of `metadata.version` from which a directory can have users (3.5-IV2)."""

MADE: Final = {
    "metadata.version": 25,
    "group.version": 1,
    "transaction.version": 2,
    "eligible.leader.replicas.version": 1,
}
"""The features of a directory that aiokq made."""

LEVELS: Final[Mapping[tuple[str, int], Mapping[str, int]]] = {
    ("aiokq", 1): {"metadata.version": 27, "eligible.leader.replicas.version": 0},
    ("kafka", 1): {
        "transaction.version": 1,
        "eligible.leader.replicas.version": 1,
        "group.version": 0,
    },
    ("aiokq", 2): {"group.version": 1, "metadata.version": 26},
    ("kafka", 2): {"metadata.version": 29, "transaction.version": 2},
    ("aiokq", 3): {"metadata.version": 28, "group.version": 0},
    ("kafka", 3): {"share.version": 1, "group.version": 1, "transaction.version": 0},
}
"""The levels that each turn sets: each make raises and lowers what the other has set."""

DYNAMIC: Final = "dynamic"
STATIC: Final = "static"
"""Where the voters are: in the log (`kraft.version` 1), or in the settings (0)."""

Facts = dict[str, str]


class Node(ApacheKafka):
    """A single node of Apache Kafka whose log directory aiokq can use, too.

    Args:
        voters: `DYNAMIC` or `STATIC`.
        spread: use two log directories, and a third directory for the metadata log.
        release: the release of Apache Kafka; None for the newest.
    """

    def __init__(
        self, directory: Path, voters: str, *, spread: bool = False, release: str | None = None
    ) -> None:
        super().__init__(
            directory,
            release=release,
            listeners={LOGIN: "SASL_PLAINTEXT"},
            **SETTINGS,
            **ACCESS,
            **LOGINS,
        )
        self.voters = voters
        self.log_dirs = [directory / "node-1"]
        self.data = self.log_dirs[0]
        """The directory of the metadata log."""
        if spread:
            self.log_dirs.append(directory / "more")
            self.data = directory / "metadata"
            self.properties |= {
                "log.dirs": ",".join(map(str, self.log_dirs)),
                "metadata.log.dir": str(self.data),
            }
        self._properties_path(1).write_text(self.configuration(1))

    def configuration(self, node: int) -> str:
        text = super().configuration(node)
        if self.voters == STATIC:
            return text
        return text.replace("controller.quorum.voters=1@", "controller.quorum.bootstrap.servers=")

    def format_release(self, release: str) -> None:
        """Format the directories with Kafka's tool, with the features of a release."""
        arguments = ["-t", random_id(), "-c", str(self._properties_path(1))]
        if self.voters == DYNAMIC:
            arguments.append("--standalone")
        tool = "kafka.tools.StorageTool"
        done = run_tool(tool, "format", *arguments, "--release-version", release)
        assert done.returncode == 0, done.stderr

    def aiokq(self) -> BrokerProcess:
        """Return aiokq's broker with the node's settings and address, not started."""
        path = self.directory / "aiokq.properties"
        lines = self.configuration(1).splitlines(keepends=True)
        path.write_text("".join(one for one in lines if "replica.selector.class" not in one))
        first, *others = self.log_dirs
        more = [part for one in others for part in ("--data-dir", str(one))]
        return BrokerProcess(first, *more, "--config", str(path), port=self.ports[1])

    @property
    def login(self) -> str:
        """The address at which users log in."""
        return f"127.0.0.1:{self.listener_ports[1][LOGIN]}"

    def strays(self) -> list[Path]:
        """Return the directories of partitions that were set aside."""
        return [path for one in self.log_dirs for path in one.glob("*-stray")]


# --- what the metadata says


def state(data: Path) -> MetadataState:
    """Read the metadata log of a stopped node."""
    return MetadataReader(OsFiles(), str(data / CLUSTER_METADATA), crc32c).read()


def facts(found: MetadataState) -> Facts:
    """Return the records of the metadata by what they are about, without what starts change."""
    names = {topic.topic_id: topic.name for topic in found.image.topics.values()}
    said: Facts = {}
    for record in found.image.records():
        kind = type(record).__name__
        assert kind in FACTS or kind in OF_A_START, kind
        if kind in OF_A_START:
            continue
        identity = [getattr(record, field) for field in FACTS[kind]]
        identity[:1] = [names.get(identity[0], identity[0])]
        if kind == "ClientQuotaRecord":  # a snapshot may have the parts in another order
            record = copy.copy(record)
            record.entity = sorted(record.entity, key=lambda one: one.entity_type)
            identity[1] = [(one.entity_type, one.entity_name) for one in record.entity]
        if kind == "PartitionRecord":
            record = copy.copy(record)
            for field, value in OF_LEADERSHIP.items():
                setattr(record, field, value)
        name = " ".join([kind.removesuffix("Record"), *map(str, identity)])
        assert name not in said, name
        said[name] = repr(record)
    return said


def epochs(found: MetadataState) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the leader epoch and the partition epoch of each partition."""
    return {
        (topic.name, index): (one.leader_epoch, one.partition_epoch)
        for topic in found.image.topics.values()
        for index, one in enumerate(topic.partitions)
    }


def differences(before: Facts, after: Facts) -> dict[str, str]:
    """Return what was "added", "removed" or "changed"; internal topics are left out."""
    found = {}
    for name in {*before, *after}:
        old, new = before.get(name), after.get(name)
        if old != new and " __" not in name:
            found[name] = "added" if old is None else "removed" if new is None else "changed"
    return found


# --- what a turn asks for


class Turn(NamedTuple):
    """One use of the directory by one of the two brokers.

    Attributes:
        make: "aiokq" or "kafka".
        round: number of the round, from 1; in each, aiokq has the first turn.
    """

    make: str
    round: int

    @property
    def number(self) -> int:
        """Number of the turn, from 1."""
        return 2 * self.round - (self.make == "aiokq")

    @property
    def topic(self) -> str:
        """The topic that the turn creates; the next turn of the make deletes it."""
        return f"{self.make}-{self.round}"


async def change(bootstrap: str, turn: Turn) -> dict[str, str]:
    """Ask for a change of each kind; return the expected `differences`."""
    number, topic = turn.number, turn.topic
    session = {"consumer.session.timeout.ms": str(50000 + number)}
    group = ConfigResource(ConfigResourceType.GROUP, "workers")
    async with aiokq.Admin(bootstrap) as admin:
        new = [NewTopic(topic, 2, 1, configs={"retention.ms": "864000000"})]
        if number == 1:
            new.append(NewTopic("shared", 1, 1, configs={"segment.ms": "900001"}))
        await admin.create_topics(new, raise_errors=True)
        if number > 1:
            await admin.create_partitions({"shared": number}, raise_errors=True)
            await admin.alter_configs({"shared": {"segment.ms": str(900000 + number)}})
        if turn.round > 1:
            await admin.delete_topics(f"{turn.make}-{turn.round - 1}", raise_errors=True)
        await admin.alter_configs({group: session}, raise_errors=True)
    expected = {
        f"Topic {topic}": "added",
        f"Partition {topic} 0": "added",
        f"Partition {topic} 1": "added",
        f"Config 2 {topic} retention.ms": "added",
        f"Partition shared {number - 1}": "added",
        "Config 2 shared segment.ms": "changed",
        "Config 32 workers consumer.session.timeout.ms": "changed",
    }
    if number == 1:
        first = ("Topic shared", *(name for name, how in expected.items() if how == "changed"))
        expected |= dict.fromkeys(first, "added")
    if turn.round > 1:
        gone = f"{turn.make}-{turn.round - 1}"
        names = ("Topic {}", "Partition {} 0", "Partition {} 1", "Config 2 {} retention.ms")
        expected |= {name.format(gone): "removed" for name in names}
    return expected


def levels_after(number: int) -> dict[str, int]:
    """Return the levels of features after a number of turns; features that are off are left out."""
    levels = dict(MADE)
    for of_turn in list(LEVELS.values())[:number]:
        levels |= of_turn
    return {name: level for name, level in levels.items() if level}


async def check_levels(bootstrap: str, make: str, number: int) -> None:
    """Check that a broker tells clients the levels that the turns so far have set.

    aiokq tells the levels of those features that it implements, and at once. Apache Kafka's broker
    applies a change a moment after its controller has answered.
    """
    wanted = levels_after(number)
    if make == "aiokq":
        wanted = {name: level for name, level in wanted.items() if name in supported_ranges()}
    end = time.monotonic() + (PATIENCE if make == "kafka" else 0)
    async with aiokq.Admin(bootstrap) as admin:
        while True:
            features = (await admin.describe_features()).finalized_features
            found = {name: one.max_version_level for name, one in features.items()}
            found.pop("kraft.version", None)
            if found == wanted or time.monotonic() > end:
                break
            await asyncio.sleep(0.05)
    assert found == wanted


async def change_levels(bootstrap: str, turn: Turn) -> dict[str, str]:
    """Change the levels of features; return the expected `differences`."""
    levels, before = LEVELS[turn.make, turn.round], levels_after(turn.number - 1)
    updates = {
        name: FeatureUpdate(level, "upgrade" if level > before.get(name, 0) else "safe_downgrade")
        for name, level in levels.items()
    }
    async with aiokq.Admin(bootstrap) as admin:
        await admin.update_features(updates, raise_errors=True)
    await check_levels(bootstrap, turn.make, turn.number)
    return {
        f"FeatureLevel {name}": "removed" if not level else "changed" if name in before else "added"
        for name, level in levels.items()
    }


def change_acls(bootstrap: str, turn: Turn) -> dict[str, str]:
    """Create an ACL, and remove that of the last turn; return the expected `differences`."""
    number = turn.number
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_acls([AclBinding(*acl(number))]).values():
        made.result(PATIENCE)
    name = f"AccessControlEntry User:alice-{{}} shared {int(AclOperation.READ.value)}"
    expected = {name.format(number): "added"}
    if number > 1:
        for removed in admin.delete_acls([AclBindingFilter(*acl(number - 1))]).values():
            assert len(removed.result(PATIENCE)) == 1
        expected[name.format(number - 1)] = "removed"
    return expected


async def change_users(bootstrap: str, turn: Turn) -> dict[str, str]:
    """Add, change and delete SCRAM credentials; return the expected `differences`.

    The user of the ACL is added, and that of the last turn is deleted. The password of a user that
    both makes know is changed. A directory of an early release cannot have users.
    """
    number = turn.number
    async with aiokq.Admin(bootstrap) as admin:
        features = (await admin.describe_features()).finalized_features
        if features["metadata.version"].max_version_level < SCRAM_LEVEL:
            return {}
        changes: list[ScramUpsertion | ScramDeletion] = [
            ScramUpsertion(f"alice-{number}", password(number)),
            ScramUpsertion("bob", password(number), "SCRAM-SHA-512", 4096 + number),
        ]
        if number == 1:
            changes.append(ScramUpsertion(KEPT, password(number)))
        if number > 1:
            changes.append(ScramDeletion(f"alice-{number - 1}"))
        await admin.alter_user_scram_credentials(changes, raise_errors=True)
    expected = {
        f"UserScramCredential alice-{number} 1": "added",
        "UserScramCredential bob 2": "changed" if number > 1 else "added",
    }
    if number == 1:
        expected[f"UserScramCredential {KEPT} 1"] = "added"
    else:
        expected[f"UserScramCredential alice-{number - 1} 1"] = "removed"
    return expected


def quotas(number: int) -> dict[ClientQuotaEntity, dict[str, float]]:
    """Return the quotas that a turn leaves: of a user, a client of all users, and an address."""
    return {
        ClientQuotaEntity(user="carol"): {"consumer_byte_rate": 1000.0 * number},
        ClientQuotaEntity(user=QuotaName.DEFAULT, client_id=f"app-{number}"): {
            "producer_byte_rate": 2048.0,
            "request_percentage": 150.5,
        },
        ClientQuotaEntity(ip=f"192.0.2.{number}"): {"connection_creation_rate": 7.0},
    }


async def change_quotas(bootstrap: str, turn: Turn) -> dict[str, str]:
    """Set quotas, and remove those of the last turn; return the expected `differences`."""
    number = turn.number
    changes: dict[ClientQuotaEntity, dict[str, float | None]] = {}
    if number > 1:
        changes = {
            entity: dict.fromkeys(values)
            for entity, values in quotas(number - 1).items()
            if entity.user != "carol"
        }
    changes |= {entity: dict(values) for entity, values in quotas(number).items()}
    async with aiokq.Admin(bootstrap) as admin:
        await admin.alter_client_quotas(changes, raise_errors=True)

    def names(number: int) -> tuple[str, ...]:
        client = [("client-id", f"app-{number}"), ("user", None)]
        return (
            f"ClientQuota producer_byte_rate {client}",
            f"ClientQuota request_percentage {client}",
            f"ClientQuota connection_creation_rate {[('ip', f'192.0.2.{number}')]}",
        )

    carol = f"ClientQuota consumer_byte_rate {[('user', 'carol')]}"
    expected = dict.fromkeys(names(number), "added")
    expected[carol] = "changed" if number > 1 else "added"
    if number > 1:
        expected |= dict.fromkeys(names(number - 1), "removed")
    return expected


async def check_access(node: Node, make: str, number: int) -> None:
    """Check that ACLs, users and quotas of the last turn are in force, whoever made them.

    The user of the last turn logs in and sees the topic that its ACL allows. Another user logs in
    with the password of the last turn, and does not see the topic. The user of the turn before can
    no longer log in. aiokq has the users of the log when it accepts connections; Apache Kafka is
    given some time.

    Args:
        make: the broker that runs.
        number: number of the last turn.
    """
    async with aiokq.Admin(node.bootstrap_servers) as admin:
        assert await admin.describe_client_quotas() == quotas(number)
        if not await admin.describe_user_scram_credentials():  # of an early release
            return
    mechanisms = {f"alice-{number}": "SCRAM-SHA-256", "bob": "SCRAM-SHA-512"}
    end = time.monotonic() + (PATIENCE if make == "kafka" else 0)
    seen = {}
    for user, how in mechanisms.items():
        while user not in seen:
            try:
                seen[user] = await _topics(node, user, number, how)
            except (errors.BootstrapFailed, errors.AuthenticationFailed):
                if time.monotonic() > end:
                    raise
    assert "shared" in seen[f"alice-{number}"]
    assert "shared" not in seen["bob"]
    for user in (f"alice-{number - 1}", "bob"):
        how = mechanisms.get(user, "SCRAM-SHA-256")
        while (refusal := await _refusal(node, user, number - 1, how)) is None:
            assert time.monotonic() < end, user
        assert re.search("[Cc]heck the credentials", refusal)


async def _refusal(node: Node, user: str, number: int, mechanism: str) -> str | None:
    """Return the error of a login; None if a connection of the client logs in."""
    try:
        await _topics(node, user, number, mechanism)
    except errors.BootstrapFailed as error:
        return str(error)
    except errors.AuthenticationFailed:  # of a later connection: the credential has just changed
        return None
    return None


async def _topics(node: Node, user: str, number: int, mechanism: str) -> list[str]:
    settings: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password(number),
    }
    async with aiokq.Admin(node.login, **settings) as admin:
        return list(await admin.list_topics())


def password(number: int) -> str:
    """Return the password that a turn gives to its users."""
    return f"secret of turn {number}"


async def change_of_kafka(bootstrap: str, turn: Turn) -> dict[str, str]:
    """Ask for changes that only Apache Kafka makes; return the expected `differences`."""
    number = turn.round
    cluster = ConfigResource(ConfigResourceType.BROKER, "")
    broker = ConfigResource(ConfigResourceType.BROKER, "1")
    async with aiokq.Admin(bootstrap) as ours:
        await ours.alter_configs(
            {
                cluster: {"background.threads": str(11 + number)},
                broker: {"num.io.threads": str(9 + number)},
            },
            raise_errors=True,
        )
    again = "changed" if number > 1 else "added"
    return {
        "Config 4  background.threads": again,
        "Config 4 1 num.io.threads": again,
    }


def acl(number: int) -> tuple[Any, ...]:
    """Return the arguments of a binding, which are also those of a filter."""
    return (
        ResourceType.TOPIC,
        "shared",
        ResourcePatternType.LITERAL,
        f"User:alice-{number}",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


async def write(bootstrap: str, turn: Turn) -> None:
    """Write records to the new topic and to every partition of the shared one."""
    codec = CODECS[turn.number % len(CODECS)]
    produce(bootstrap, turn.topic, 20, codec=codec)
    async with aiokq.Producer(bootstrap, enable_idempotence=True) as producer:
        for partition in range(turn.number):
            value = b"%s %d" % (turn.topic.encode(), partition)
            await producer.send("shared", value, key=b"key", partition=partition)


def counts(bootstrap: str) -> dict[str, int]:
    """Return the topics that are not internal, with their partition counts."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE)
    return {
        name: len(topic.partitions)
        for name, topic in found.topics.items()
        if not name.startswith("__")
    }


# --- Kafka's tools


def dump(data: Path) -> str:
    """Return what Kafka's tool prints of the segments and snapshots of the metadata log."""
    directory = data / CLUSTER_METADATA
    files: Iterable[Path] = [*directory.glob("*.log"), *directory.glob("*.checkpoint")]
    done = run_tool(
        "kafka.tools.DumpLogSegments",
        "--cluster-metadata-decoder",
        "--skip-record-metadata",
        "--files",
        ",".join(map(str, sorted(files))),
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip(), done.stderr
    return done.stdout


def shell_paths(file: Path) -> set[str]:
    """Return the topics, partitions and configs in a file, as paths of Kafka's metadata shell.

    The shell of Kafka 4.2 cannot list all of an image that has a quota of a default user, even if
    Apache Kafka wrote it: its name for the entity leaves out the default.
    """
    shell, parts = "org.apache.kafka.shell.MetadataShell", ("/image/topics", "/image/configs")
    done = run_tool(shell, "--snapshot", str(file), "find", *parts, jars=SHELL)
    assert done.returncode == 0, done.stderr
    lines = (line.removeprefix("/image/") for line in done.stdout.splitlines())
    wanted = re.compile(r"topics/byName/[^/]+(/\d+)?|configs/[^/]+/.+")
    return {line for line in lines if wanted.fullmatch(line)}


def image_paths(found: MetadataState) -> set[str]:
    """Return the same paths of a metadata image."""
    kinds = {2: "TOPIC", 4: "BROKER", 32: "GROUP"}
    paths: set[str] = set()
    for topic in found.image.topics.values():
        place = f"topics/byName/{topic.name}"
        paths |= {place, *(f"{place}/{index}" for index in range(len(topic.partitions)))}
    for (kind, name), configs in found.image.configs.items():
        resource = f"{kinds[kind]}:{name}" if name else kinds[kind]
        paths |= {f"configs/{resource}/{key}" for key in configs}
    return paths
