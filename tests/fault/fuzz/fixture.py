"""The files, settings and rights of the broker that is fuzzed, and clients of it."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

import aiokq
from tests.fault.fuzz.plans import PASSWORDS
from tests.fault.fuzz.values import SECRET, SHARED
from tests.peers.pki import Pki
from tests.peers.ports import free_ports

SECURITY = "org.apache.kafka.common.security"
PROTOCOLS = {
    "plain": "PLAINTEXT",
    "tls": "SSL",
    "mutual": "SSL",
    "sasl": "SASL_PLAINTEXT",
    "secure": "SASL_SSL",
    "reauth": "SASL_PLAINTEXT",
    "admin": "SASL_PLAINTEXT",
}
"""The security protocol of each listener. Nobody fuzzes the last one."""

ALL_PASSWORDS = {**PASSWORDS, "admin": "admin-pw-5d02", "worker": "worker-pw-77aa"}
MARKER = b"TOP-SECRET-c0ffee-"
HIDDEN = "hidden-9b1deb4d"
"""A topic whose name no fuzzer sends."""

FETCH_SESSIONS = 8
"""The largest number of fetch sessions. The working clients alone have six."""

WORK = {"plain": "work-anonymous", "tls": "work-anonymous"}
"""The topic of the working client of a listener; that of the others is `work`."""

RIGHTS = [
    line.format(user=user)
    for user in ("User:mallory", "User:ANONYMOUS")
    for line in (
        f"{{user}} Allow Read,Write,Describe Topic:{SHARED}",
        "{user} Allow Read,Write,Create,Delete,Alter,AlterConfigs Topic:mine-*",
        "{user} Allow Read,Describe,Delete Group:fuzz-*",
        "{user} Allow Write,Describe TransactionalId:fuzz-*",
    )
] + ["User:ANONYMOUS Allow Read,Write Topic:work-anonymous"]

SETTINGS = """\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:worker;User:root
allow.everyone.if.no.acl.found=false
inter.broker.listener.name=ADMIN
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.admin.sasl.enabled.mechanisms=PLAIN
listener.name.reauth.connections.max.reauth.ms=2000
listener.name.reauth.scram-sha-512.connections.max.reauth.ms=15000
listener.name.mutual.ssl.client.auth=required
listener.name.mutual.ssl.principal.mapping.rules=RULE:^CN=([a-z]+)$/$1/,DEFAULT
ssl.keystore.type=PEM
ssl.truststore.type=PEM
handshake.timeout.ms=5000
connection.failed.authentication.delay.ms=50
sasl.server.max.receive.size=524288
socket.request.max.bytes=16777216
queued.max.request.bytes=67108864
max.connections=4000
group.min.session.timeout.ms=100
group.max.session.timeout.ms=3000
group.consumer.min.session.timeout.ms=1000
group.consumer.session.timeout.ms=2000
group.consumer.heartbeat.interval.ms=1000
group.consumer.min.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
transaction.max.timeout.ms=3000
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
transactional.id.expiration.ms=60000
log.retention.check.interval.ms=5000
log.segment.delete.delay.ms=500
offsets.topic.num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Fixture:
    """The files of a broker under test, in a directory.

    Attributes:
        ports: the port of each listener.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.properties = directory / "server.properties"
        self.probe = directory / "probe"
        self.log = directory / "broker.log"
        self.ports: dict[str, int] = {}

    @classmethod
    def create(cls, directory: Path) -> Fixture:
        found = cls(directory)
        directory.mkdir(parents=True, exist_ok=True)
        found.ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
        found._certificates()
        found._keys()
        found.properties.write_text(found._settings())
        (directory / "ports.json").write_text(json.dumps(found.ports))
        return found

    @classmethod
    def load(cls, directory: Path) -> Fixture:
        found = cls(directory)
        found.ports = json.loads((directory / "ports.json").read_text())
        return found

    def _certificates(self) -> None:
        pki = Pki("fuzz")
        directory = self.directory
        (directory / "ca.pem").write_text(pki.trusted)
        pki.issue().write(directory, "node")
        for name in ("mallory", "root", "worker"):
            pki.issue(name, "client").write(directory, name)
        Pki("stranger").issue("root", "client").write(directory, "stranger")
        pki.issue("root", "client", days=-1).write(directory, "expired")
        odd = [
            x509.NameAttribute(NameOID.COMMON_NAME, 'root\\,O="\0+=<>#;ä\u202e'),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, " root "),
        ]
        pki.issue(x509.Name(odd), "client").write(directory, "odd")
        many = [f"name-{n}.example" for n in range(1500)]
        pki.issue("large", *many).write(directory, "large")

    def _keys(self) -> None:
        """Write the public key of an authorization server that signs no token."""
        from tests.unit.broker.security.authentication.token_makers import jwk, rsa_key

        keys = {"keys": [jwk(rsa_key(), "k")]}
        (self.directory / "keys.json").write_text(json.dumps(keys))

    def _settings(self) -> str:
        users = " ".join(f'user_{name}="{text}"' for name, text in ALL_PASSWORDS.items())
        lines = [
            "listeners="
            + ",".join(f"{name.upper()}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map="
            + ",".join(f"{name.upper()}:{each}" for name, each in PROTOCOLS.items()),
            SETTINGS,
            f"max.incremental.fetch.session.cache.slots={FETCH_SESSIONS}",
            f"ssl.keystore.location={self.directory}/node.pem",
            f"ssl.truststore.location={self.directory}/ca.pem",
        ]
        for name in ("sasl", "secure", "reauth", "admin"):
            prefix = f"listener.name.{name}"
            plain = f"{SECURITY}.plain.PlainLoginModule required {users};"
            lines.append(f"{prefix}.plain.sasl.jaas.config={plain}")
            if name == "admin":
                continue
            scram = f"{SECURITY}.scram.ScramLoginModule required;"
            oauth = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;"
            keys = f"file://{self.directory}/keys.json"
            lines += [
                f"{prefix}.scram-sha-256.sasl.jaas.config={scram}",
                f"{prefix}.scram-sha-512.sasl.jaas.config={scram}",
                f"{prefix}.oauthbearer.sasl.jaas.config={oauth}",
                f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url={keys}",
                f"{prefix}.oauthbearer.sasl.oauthbearer.expected.audience=kafka",
            ]
        return "\n".join(lines) + "\n"

    def settings(self, listener: str) -> dict[str, Any]:
        """Return the settings of a client on a listener: `admin` for the administrator."""
        found: dict[str, Any] = {
            "bootstrap_servers": f"127.0.0.1:{self.ports[listener]}",
            "security_protocol": PROTOCOLS[listener],
            "client_id": "worker",
        }
        if "SSL" in PROTOCOLS[listener]:
            found["ssl_cafile"] = str(self.directory / "ca.pem")
        if listener == "mutual":
            found["ssl_certfile"] = found["ssl_keyfile"] = str(self.directory / "worker.pem")
        if "SASL" in PROTOCOLS[listener]:
            user = "admin" if listener == "admin" else "worker"
            mechanisms = {
                "sasl": "SCRAM-SHA-256",
                "secure": "SCRAM-SHA-512",
                "reauth": "SCRAM-SHA-512",  # with a longer session, for busy machines
            }
            found |= {
                "sasl_mechanism": mechanisms.get(listener, "PLAIN"),
                "sasl_plain_username": user,
                "sasl_plain_password": ALL_PASSWORDS[user],
            }
        return found

    def client_context(self, identity: str) -> ssl.SSLContext:
        """Return a TLS context of a fuzzer; `identity` names its certificate, "" for none."""
        context = ssl.create_default_context(cafile=str(self.directory / "ca.pem"))
        context.check_hostname = False
        if identity:
            context.load_cert_chain(str(self.directory / f"{identity}.pem"))
        return context


async def furnish(fixture: Fixture) -> dict[str, str]:
    """Create topics, users, rights and quotas; return the ids of topics by name, as hex."""
    async with aiokq.Admin(**fixture.settings("admin")) as admin:
        await admin.create_acls(RIGHTS, raise_errors=True)
        small = {"retention.bytes": "4000000", "segment.bytes": "1048576"}
        await admin.create_topics(
            [
                aiokq.NewTopic(SHARED, 3, configs=small),
                aiokq.NewTopic(SECRET, 2),
                aiokq.NewTopic(HIDDEN, 1),
                aiokq.NewTopic("work", 1, configs=small),
                aiokq.NewTopic("work-anonymous", 1, configs=small),
            ],
            raise_errors=True,
        )
        await admin.alter_user_scram_credentials(
            [
                aiokq.ScramUpsertion(name, password, mechanism=mechanism)
                for name, password in ALL_PASSWORDS.items()
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            ],
            raise_errors=True,
        )
        quota = {
            "producer_byte_rate": 4e6,
            "consumer_byte_rate": 40e6,
            "request_percentage": 90.0,
            "controller_mutation_rate": 20.0,
        }
        await admin.alter_client_quotas(
            {aiokq.ClientQuotaEntity(user="mallory"): quota}, raise_errors=True
        )
        async with aiokq.Producer(**fixture.settings("admin")) as producer:
            for number in range(20):
                await producer.send(SECRET, MARKER + b"%d" % number, partition=number % 2)
                await producer.send(HIDDEN, MARKER + b"%d" % number)
        # The first transaction creates the topic of its coordinator.
        producer = aiokq.Producer(
            **fixture.settings("admin"), transactional_id=SECRET, transaction_timeout_ms=3000
        )
        async with producer, producer.transaction():
            await producer.send(HIDDEN, MARKER)
        await admin.alter_group_offsets(
            SECRET, {(SECRET, 0): aiokq.OffsetAndMetadata(5, MARKER.decode())}
        )
        described = await admin.describe_topics([SECRET, SHARED, HIDDEN], raise_errors=True)
        return {name: one.topic_id.hex for name, one in described.items()}


async def secrets_of(fixture: Fixture) -> dict[str, object]:
    """Return all that no fuzzer may change, for a comparison before and after."""
    async with aiokq.Admin(**fixture.settings("admin"), default_api_timeout_ms=30_000) as admin:
        topics = await admin.describe_topics([SECRET, HIDDEN], raise_errors=True)
        configs = await admin.describe_configs([SECRET], raise_errors=True)
        offsets = await admin.list_group_offsets([SECRET])
        acls = [str(one) for one in await admin.describe_acls() if "fuzz-" not in one.principal]
        users = [
            name
            for name in await admin.describe_user_scram_credentials()
            if not name.startswith("fuzz-")
        ]
        quotas = [
            str(entry)
            for entry in sorted(map(str, (await admin.describe_client_quotas()).items()))
            if "fuzz-" not in entry
        ]
    records = []
    async with aiokq.Cluster(**fixture.settings("admin")) as cluster:
        for topic, partition in ((SECRET, 0), (SECRET, 1), (HIDDEN, 0)):
            async for batch in cluster.read((topic, partition), "earliest", "latest"):
                records += [(topic, partition, one.offset, one.value) for one in batch]
    return {
        "topics": [(name, str(one.topic_id), len(one.partitions)) for name, one in topics.items()],
        "configs": str(configs),
        "offsets": str(offsets),
        "acls": sorted(acls),
        "users": sorted(users),
        "quotas": quotas,
        "records": records,
    }


def needles(ids: dict[str, str]) -> dict[str, bytes]:
    """Return what no answer to a fuzzer without rights may contain, unless it was in a request."""
    found = {
        "the records of a secret topic": MARKER,
        "the name of a hidden topic": HIDDEN.encode(),
        "the id of a secret topic": bytes.fromhex(ids[SECRET]),
        "the id of a hidden topic": bytes.fromhex(ids[HIDDEN]),
    }
    found |= {f"the password of {name}": text.encode() for name, text in ALL_PASSWORDS.items()}
    return found
