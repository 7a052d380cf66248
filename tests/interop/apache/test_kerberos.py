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

pytestmark = pytest.mark.kafka

SESSION_MS = 2000


class Realm(NamedTuple):
    """A node of Apache Kafka, and the keys of a client."""

    kafka: ApacheKafka
    keytab: Path

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": f"127.0.0.1:{self.kafka.listener_ports[1]['KERBEROS']}",
            "security_protocol": "SASL_PLAINTEXT",
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
        name = "listener.name.kerberos.gssapi"
        properties = {
            "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            f"{name}.connections.max.reauth.ms": str(SESSION_MS),
            f"{name}.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required "
            f'useKeyTab=true storeKey=true keyTab="{keys}" '
            f'principal="kafka/localhost@{kerberos.REALM}";',
        }
        with apache_kafka(
            1,
            listeners={"KERBEROS": "SASL_PLAINTEXT"},
            java_options=[f"-Djava.security.krb5.conf={kdc.configuration}"],
            **properties,
        ) as kafka:
            yield Realm(kafka, kdc.keytab("anna"))


async def test_a_client_logs_in_by_a_ticket_and_renews_its_session(
    realm: Realm, topic: str
) -> None:
    settings = realm.settings()
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
