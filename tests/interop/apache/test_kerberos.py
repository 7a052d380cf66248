"""GSSAPI against Apache Kafka, with a key distribution center of MIT Kerberos."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import aiokq
from aiokq import errors
from tests.peers import kerberos
from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent
from tests.peers.pki import Pki

pytestmark = pytest.mark.kafka

SESSION_MS = 2000
LISTENERS = {"KERBEROS": "SASL_PLAINTEXT", "KERBEROSTLS": "SASL_SSL"}


class Realm(NamedTuple):
    """A node of Apache Kafka, the keys of a client, and the authority of the node's certificate."""

    kafka: ApacheKafka
    keytab: Path
    authority: Path

    def settings(self, listener: str = "KERBEROS", **changes: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": f"127.0.0.1:{self.kafka.listener_ports[1][listener]}",
            "security_protocol": LISTENERS[listener],
            **({"ssl_cafile": str(self.authority)} if listener == "KERBEROSTLS" else {}),
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_service_name": "kafka",
            "sasl_kerberos_domain_name": "localhost",
            "sasl_kerberos_keytab": str(self.keytab),
            "sasl_kerberos_principal": f"anna@{kerberos.REALM}",
        } | changes


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    reason = why_absent() or kerberos.why_absent()
    if reason is not None:
        pytest.skip(f"KERBEROS IS NOT TESTED: {reason}")
    with (
        pytest.MonkeyPatch.context() as patch,
        kerberos.Kdc(tmp_path_factory.mktemp("kdc")) as kdc,
    ):
        patch.setenv("KRB5_CONFIG", str(kdc.configuration))
        keys = kdc.keytab("kafka/localhost")
        directory = tmp_path_factory.mktemp("tls")
        pki = Pki()
        authority = directory / "authority.pem"
        authority.write_text(pki.trusted)
        node = pki.issue("node", "localhost", "127.0.0.1", uses_rsa=True).write(directory, "node")
        properties = {
            "sasl.kerberos.service.name": "kafka",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(node),
        }
        for listener in LISTENERS:
            name = f"listener.name.{listener.lower()}"
            properties |= {
                f"{name}.sasl.enabled.mechanisms": "GSSAPI",
                f"{name}.gssapi.connections.max.reauth.ms": str(SESSION_MS),
                f"{name}.gssapi.sasl.jaas.config": (
                    "com.sun.security.auth.module.Krb5LoginModule required "
                    f'useKeyTab=true storeKey=true keyTab="{keys}" '
                    f'principal="kafka/localhost@{kerberos.REALM}";'
                ),
            }
        with apache_kafka(
            1,
            listeners=LISTENERS,
            java_options=[f"-Djava.security.krb5.conf={kdc.configuration}"],
            **properties,
        ) as kafka:
            yield Realm(kafka, kdc.keytab("anna"), authority)


@pytest.mark.parametrize("listener", LISTENERS)
async def test_a_client_logs_in_by_a_ticket_and_renews_its_session(
    realm: Realm, topic: str, listener: str
) -> None:
    settings = realm.settings(listener)
    async with asyncio.timeout(60), aiokq.Cluster(**settings) as cluster:
        async with cluster.producer() as producer:
            count = 0
            ends = time.monotonic() + 2 * SESSION_MS / 1000
            while time.monotonic() < ends:
                assert (await producer.send(topic, b"v")).offset == count
                count += 1
                await asyncio.sleep(0.05)
        async with cluster.consumer(topic, auto_offset_reset="earliest") as consumer:
            assert (await consumer.getone()).value == b"v"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sasl_kerberos_service_name": "other"}, "check the tickets"),
        ({"sasl_kerberos_principal": f"otto@{kerberos.REALM}"}, "check the tickets"),
        ({"sasl_kerberos_keytab": "/no/such/keytab"}, "check the tickets"),
    ],
)
async def test_what_cannot_log_in_is_told_why(
    realm: Realm, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(errors.BootstrapFailed, match=told):
        async with aiokq.Producer(**realm.settings(**changes)):
            pass
