"""One `server.properties` with the settings of security starts Apache Kafka and `aiokq broker`.

The file is the same byte for byte, and so are the files of the Java clients that are used on both.
What the tools of Java print, and what they are refused, is compared.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers import certificates
from tests.peers.apache_kafka import START_SECONDS, java_command, random_id, run_tool, why_absent
from tests.peers.ports import free_ports

pytestmark = pytest.mark.kafka

SECURITY = "org.apache.kafka.common.security"
PLAIN = f"{SECURITY}.plain.PlainLoginModule"
SCRAM = f"{SECURITY}.scram.ScramLoginModule"
OAUTHBEARER = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule"

SERVER = """\
# Who this node is
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER

# Where it listens, and how clients are authenticated there
listeners=SASL_SSL://127.0.0.1:{sasl_ssl},MUTUAL://127.0.0.1:{mutual},INTERNAL://127.0.0.1:{internal},\
CONTROLLER://127.0.0.1:{controller}
advertised.listeners=SASL_SSL://127.0.0.1:{sasl_ssl},MUTUAL://localhost:{mutual},\
INTERNAL://127.0.0.1:{internal}
listener.security.protocol.map=SASL_SSL:SASL_SSL,MUTUAL:SSL,INTERNAL:SASL_PLAINTEXT,\
CONTROLLER:SASL_PLAINTEXT
inter.broker.listener.name=INTERNAL
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl_ssl.plain.sasl.jaas.config={plain} required user_alice="${{env:ALICE_PASSWORD}}";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={scram} required;
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={scram} required;
listener.name.sasl_ssl.oauthbearer.sasl.jaas.config={oauthbearer} required;
listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file://{directory}/keys.json
listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.expected.audience=kafka
listener.name.sasl_ssl.connections.max.reauth.ms=60000
listener.name.sasl_ssl.scram-sha-256.connections.max.reauth.ms=30000
listener.name.internal.plain.sasl.jaas.config={plain} required \\
  username="node" password="node-secret" \\
  user_node="node-secret";
listener.name.controller.plain.sasl.jaas.config={plain} required username="node" \\
  password="node-secret" user_node="node-secret";

# TLS
ssl.keystore.type=PEM
ssl.keystore.location={directory}/node.both.pem
ssl.truststore.type=PEM
ssl.truststore.location={directory}/authority.pem
ssl.enabled.protocols=TLSv1.3,TLSv1.2
listener.name.mutual.ssl.client.auth=required
listener.name.mutual.ssl.principal.mapping.rules=RULE:^CN=([a-z]+).*$/$1/,DEFAULT

# What clients may do
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:node
allow.everyone.if.no.acl.found=false

# How much
max.connections=1000
max.connections.per.ip=500
max.connections.per.ip.overrides=127.0.0.1:600
listener.name.mutual.max.connections=100
max.connection.creation.rate=1000
quota.window.num=11
quota.window.size.seconds=1
controller.quota.window.num=11
controller.quota.window.size.seconds=1
connection.failed.authentication.delay.ms=50
sasl.server.max.receive.size=65536

# Secrets from elsewhere
config.providers=env,file,dir
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider

log.dirs={directory}/data
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""

USERS = (
    "SCRAM-SHA-512=[name=admin,password=admin-secret]",
    "SCRAM-SHA-256=[name=bob,iterations=8192,password=bob-secret]",
)
ENVIRONMENT = {
    **os.environ,
    "ALICE_PASSWORD": "alice-secret",
}


def login(module: str, name: str, password: str) -> str:
    return f'{module} required username="{name}" password="{password}";'


class Setup:
    """The files of a node and of its clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        authority = certificates.Authority(directory)
        authority.issue("node", ["DNS:localhost", "IP:127.0.0.1"])
        carol = authority.issue("carol", ["DNS:carol"])
        names = ("sasl_ssl", "mutual", "internal", "controller")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        (directory / "keys.json").write_text(json.dumps({"keys": [rsa_key()]}))
        modules = {"plain": PLAIN, "scram": SCRAM, "oauthbearer": OAUTHBEARER}
        self.server = directory / "server.properties"
        self.server.write_text(SERVER.format(**self.ports, **modules, directory=directory))
        trust = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
        }
        for name, mechanism, module, password in (
            ("admin", "SCRAM-SHA-512", SCRAM, "admin-secret"),
            ("alice", "PLAIN", PLAIN, "alice-secret"),
            ("bob", "SCRAM-SHA-256", SCRAM, "bob-secret"),
            ("mallory", "SCRAM-SHA-256", SCRAM, "guessed"),
        ):
            user = "bob" if name == "mallory" else name
            self._client(
                name,
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": mechanism,
                    "sasl.jaas.config": login(module, user, password),
                    **trust,
                },
            )
        self._client(
            "carol",
            {
                "security.protocol": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(carol.together),
                **trust,
            },
        )

    def _client(self, name: str, values: dict[str, str]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        self.file(name).write_text(text)

    def file(self, client: str) -> Path:
        return self.directory / f"{client}.properties"

    def address(self, client: str) -> str:
        if client == "carol":
            return f"localhost:{self.ports['mutual']}"
        return f"127.0.0.1:{self.ports['sasl_ssl']}"


def accepts(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Wait until a port accepts connections; return False if the process ends before."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


def rsa_key() -> dict[str, str]:
    """Return a public key as a JWK; nobody has its private key."""
    modulus = (1 << 2047) + 12345
    text = base64.urlsafe_b64encode(modulus.to_bytes(256, "big")).decode().rstrip("=")
    return {"kty": "RSA", "kid": "k", "use": "sig", "alg": "RS256", "n": text, "e": "AQAB"}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    reason = why_absent() or certificates.why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    return Setup(tmp_path_factory.mktemp("secured"))


@pytest.fixture(params=["Apache Kafka", "aiokq"])
def node(request: pytest.FixtureRequest, setup: Setup) -> Iterator[Setup]:
    """Format a directory and start the node, with the same arguments and the same file."""
    shutil.rmtree(setup.directory / "data", ignore_errors=True)
    is_apache = request.param == "Apache Kafka"
    arguments = ["format", "-t", random_id(), "-c", str(setup.server)]
    for user in USERS:
        arguments += ["--add-scram", user]
    if is_apache:
        format_command = java_command("kafka.tools.StorageTool", *arguments)
        urls = (
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{setup.directory}/keys.json"
        )
        files = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={setup.directory}/keys.json"
        run_command = java_command("kafka.Kafka", str(setup.server), heap="512M")
        run_command[1:1] = [urls, files]
    else:
        format_command = [sys.executable, "-m", "aiokq", "storage", *arguments]
        run_command = [sys.executable, "-m", "aiokq", "broker", "--config", str(setup.server)]
    formatted = subprocess.run(format_command, capture_output=True, text=True, env=ENVIRONMENT)
    assert formatted.returncode == 0, formatted.stderr
    output = setup.directory / f"{request.param}.out"
    with open(output, "wb") as file:
        process = subprocess.Popen(run_command, stdout=file, stderr=file, env=ENVIRONMENT)
    try:
        for port in ("sasl_ssl", "mutual", "internal"):
            assert accepts(setup.ports[port], process), output.read_text()
        yield setup
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    text = output.read_text()
    assert not re.search("(admin|alice|bob|node)-secret", text), text
    if not is_apache:
        assert "Traceback" not in text


def tool(setup: Setup, client: str, name: str, *arguments: str, stdin: str = "") -> tuple[str, str]:
    """Run a tool of Kafka as a client; return what it prints, and its errors."""
    command = [*arguments, "--bootstrap-server", setup.address(client)]
    command += ["--command-config", str(setup.file(client))]
    done = run_tool(name, *command, stdin=stdin, timeout=60)
    return done.stdout, done.stderr + done.stdout


UNTOLD = (
    "super.users",
    "allow.everyone.if.no.acl.found",
    "listener.name.sasl_ssl.plain.sasl.jaas.config",
    "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config",
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config",
    "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config",
    "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url",
    "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.expected.audience",
    "listener.name.internal.plain.sasl.jaas.config",
    "listener.name.controller.plain.sasl.jaas.config",
)
"""Settings of the file that are shown without their values, as sensitive ones."""

UNGIVEN_SECRETS = (
    *("sasl.jaas.config", "ssl.key.password", "ssl.keystore.certificate.chain"),
    *("ssl.keystore.key", "ssl.keystore.password"),
    *("ssl.truststore.certificates", "ssl.truststore.password"),
)
"""Sensitive settings that the file does not have, and that are shown all the same."""

TOLD = (
    *("sasl.mechanism.inter.broker.protocol", "sasl.enabled.mechanisms", "authorizer.class.name"),
    *("listener.name.sasl_ssl.sasl.enabled.mechanisms", "sasl.server.max.receive.size"),
    "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class",
    "listener.name.sasl_ssl.connections.max.reauth.ms",
    "listener.name.sasl_ssl.scram-sha-256.connections.max.reauth.ms",
    *("ssl.keystore.type", "ssl.keystore.location"),
    *("ssl.truststore.type", "ssl.truststore.location", "ssl.enabled.protocols"),
    *("listener.name.mutual.ssl.client.auth", "listener.name.mutual.ssl.principal.mapping.rules"),
    *("max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides"),
    *("listener.name.mutual.max.connections", "max.connection.creation.rate"),
    *("quota.window.num", "quota.window.size.seconds"),
    *("controller.quota.window.num", "controller.quota.window.size.seconds"),
    "connection.failed.authentication.delay.ms",
)
"""Settings of the file whose values are shown."""

SYNONYMS = {
    "listener.name.mutual.max.connections": (
        "STATIC_BROKER_CONFIG:listener.name.mutual.max.connections=100, "
        "STATIC_BROKER_CONFIG:max.connections=1000, DEFAULT_CONFIG:max.connections=2147483647"
    ),
    "listener.name.mutual.ssl.client.auth": (
        "STATIC_BROKER_CONFIG:listener.name.mutual.ssl.client.auth=required, "
        "DEFAULT_CONFIG:ssl.client.auth=none"
    ),
    "super.users": "STATIC_BROKER_CONFIG:super.users=null",
    "ssl.keystore.key": "",
}


def test_the_same_settings_are_shown_without_their_values(node: Setup):
    """Passwords, and settings whose types Kafka does not know, as its authorizer's."""
    described, errors = tool(
        *(node, "admin", "kafka.admin.ConfigCommand", "--describe", "--all"),
        *("--entity-type", "brokers", "--entity-name", "1"),
    )
    line = r"^  (\S+?)=(.*) sensitive=(true|false) synonyms=\{(.*)\}$"
    shown = {
        name: (value, is_sensitive == "true", synonyms)
        for name, value, is_sensitive, synonyms in re.findall(line, described, re.MULTILINE)
    }
    assert shown, errors
    text = node.server.read_text().replace("\\\n", "")
    given = dict(row.split("=", 1) for row in text.splitlines() if "=" in row)
    for name in (*UNTOLD, *UNGIVEN_SECRETS):
        assert shown[name][:2] == ("null", True), name
        assert (name in given) == (name in UNTOLD), name
    for name in TOLD:
        assert shown[name][:2] == (given[name], False), name
    for name, synonyms in SYNONYMS.items():
        assert shown[name][2] == synonyms, name
    secret = {name for name, (_, is_sensitive, _) in shown.items() if is_sensitive}
    # Settings that have no effect in aiokq are not shown there.
    unused = ("config.providers.", "delegation.token.", "sasl.oauthbearer.")
    assert {name for name in secret if not name.startswith(unused)} == {*UNTOLD, *UNGIVEN_SECRETS}
    assert "User:admin" not in described
    assert "-secret" not in described


def error_in(text: str) -> str:
    """Return the name of the first error of Kafka in the output of a tool."""
    found = re.search(r"\b(\w+(?:AuthorizationException|AuthenticationException))\b", text)
    return "" if found is None else found[1]


def test_the_same_file_and_the_same_clients_work_on_both(node: Setup):
    """Users of all three kinds do what their ACLs allow, and are refused the rest."""
    created, errors = tool(
        *(node, "admin", "TopicCommand", "--create", "--topic", "orders"),
        *("--partitions", "1", "--replication-factor", "1"),
    )
    assert "Created topic orders" in created, errors
    for arguments in (
        ("--allow-principal", "User:alice", "--producer", "--topic", "orders"),
        ("--allow-principal", "User:bob", "--consumer", "--topic", "orders", "--group", "g"),
        ("--allow-principal", "User:carol", "--operation", "Describe", "--topic", "orders"),
    ):
        added, errors = tool(node, "admin", "AclCommand", "--add", *arguments)
        assert "Adding ACLs" in added, errors
    _, errors = tool(node, "alice", "ConsoleProducer", "--topic", "orders", stdin="one\ntwo\n")
    assert "Exception" not in errors
    read, errors = tool(
        *(node, "bob", "consumer.ConsoleConsumer", "--topic", "orders", "--group", "g"),
        *("--from-beginning", "--max-messages", "2", "--timeout-ms", "30000"),
    )
    assert read.split() == ["one", "two"], errors
    seen, errors = tool(node, "carol", "TopicCommand", "--list")
    assert seen.split() == ["orders"], errors

    _, errors = tool(node, "bob", "ConsoleProducer", "--topic", "orders", stdin="three\n")
    assert error_in(errors) == "ClusterAuthorizationException"  # it is idempotent
    _, errors = tool(
        *(node, "alice", "consumer.ConsoleConsumer", "--topic", "orders", "--group", "g"),
        *("--max-messages", "1", "--timeout-ms", "10000"),
    )
    assert error_in(errors) in ("GroupAuthorizationException", "TopicAuthorizationException")
    _, errors = tool(node, "carol", "AclCommand", "--list")
    assert error_in(errors) == "ClusterAuthorizationException"
    _, errors = tool(node, "mallory", "TopicCommand", "--list")
    assert error_in(errors) == "SaslAuthenticationException"
