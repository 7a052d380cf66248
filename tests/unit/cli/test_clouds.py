"""aiokq.cli.clouds: settings are compared with what a cloud's Kafka offers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiokq import ClusterSettings
from aiokq.cli.clouds import CLOUDS, cloud_checks, cloud_of
from aiokq.cli.installation_checks import Status

CONFLUENT = "pkc-12345.eu-central-1.aws.confluent.cloud:9092"
MSK = "b-1.demo.abc123.c2.kafka.eu-central-1.amazonaws.com"
EVENT_HUBS = "shop.servicebus.windows.net:9093"
GOOGLE = "bootstrap.demo.europe-west3.managedkafka.shop.cloud.goog:9092"
CONNECTION = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=S3=="

KEY = {"sasl_plain_username": "KEY", "sasl_plain_password": "S3"}
STRING = {"sasl_plain_username": "$ConnectionString", "sasl_plain_password": CONNECTION}
SCRAM = {"sasl_mechanism": "SCRAM-SHA-512", **KEY}


def token(provider: str) -> dict[str, str]:
    return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider}


def told(servers: str, protocol: str = "SASL_SSL", **login: object) -> list[str]:
    """Return "detail -> fix" of each problem; an empty list if there is none."""
    settings = ClusterSettings(bootstrap_servers=servers, security_protocol=protocol, **login)
    cloud = cloud_of(settings)
    assert cloud is not None
    checks = cloud_checks(settings, cloud)
    assert not any("S3" in check.detail + check.fix for check in checks)
    if [check.status for check in checks] == [Status.OK]:
        return []
    return [f"{check.status}: {check.detail} -> {check.fix}" for check in checks]


@pytest.mark.parametrize(
    ("servers", "login"),
    [
        (CONFLUENT, KEY),
        ("lkc-1ab.eu-central-1.aws.glb.confluent.cloud:9092", KEY),
        (f"{MSK}:9098", token("aws_msk_iam")),
        (f"{MSK}:9198", token("aws_msk_iam")),
        (f"{MSK}:20098", token("aws_msk_iam")),  # IPv6
        (f"{MSK.replace('b-1.', 'b-1-public.')}:9196", SCRAM),
        (f"{MSK}:9096", SCRAM),
        (
            "boot-abc.c1.kafka-serverless.us-east-1.amazonaws.com:9098",
            token("aws_msk_iam"),
        ),
        ("kafka.internal:14001", token("aws_msk_iam")),  # a name and a port of one's own
        (EVENT_HUBS, STRING),
        (EVENT_HUBS, token("azure_event_hubs")),
        (GOOGLE, token("google_managed_kafka")),
        (GOOGLE, {"sasl_plain_username": "a@b.example", "sasl_plain_password": "S3"}),
    ],
)
def test_the_settings_of_the_guide_have_no_problem(servers, login):
    assert told(servers, **login) == []


@pytest.mark.parametrize(
    ("servers", "login", "words"),
    [
        # wrong port
        (CONFLUENT.replace("9092", "9093"), KEY, ["warn: ", "port 9092", "use port 9092"]),
        (
            f"{MSK}:9096",
            token("aws_msk_iam"),
            ["SASL_SSL with OAUTHBEARER is on port 9098", "port 9096 has", "SCRAM-SHA-512"],
        ),
        (f"{MSK}:9094", SCRAM, ["on port 9096", "port 9094 has SSL"]),
        (EVENT_HUBS.replace("9093", "5671"), STRING, ["warn: ", "use port 9093"]),
        (
            GOOGLE.replace("9092", "9093"),
            token("google_managed_kafka"),
            ["warn: ", "use port 9092"],
        ),
        # a mechanism that the service does not have
        (CONFLUENT, SCRAM, ["the port has SASL_SSL with PLAIN", "SCRAM-SHA-512"]),
        (EVENT_HUBS, SCRAM, ["the port has SASL_SSL with PLAIN"]),
        (f"{MSK}:9098", KEY, ["the port has SASL_SSL with OAUTHBEARER"]),
        (f"{MSK}:1", KEY, ["does not offer SASL_SSL with PLAIN", "SCRAM-SHA-512 (port 9096)"]),
        # credentials of another kind or another place
        (CONFLUENT, {**KEY, "sasl_plain_username": "me@b.example"}, ["e-mail", "API key"]),
        (
            CONFLUENT,
            {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": lambda: "a.b.c",
                "sasl_oauthbearer_extensions": "identityPoolId=pool-1",
            },
            ["warn: ", "logicalCluster is missing"],
        ),
        (CONFLUENT, token("aws_msk_iam"), ["aws_msk_iam is of another service"]),
        (
            f"{MSK}:9098",
            token("google_managed_kafka"),
            ["google_managed_kafka is of another service -> set aws_msk_iam"],
        ),
        (
            f"{MSK}:9098",
            {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": "https://idp.example/token",
                "sasl_oauthbearer_client_credentials_client_id": "c",
                "sasl_oauthbearer_client_credentials_client_secret": "S3",
            },
            ["set sasl_oauth_token_provider=aws_msk_iam"],
        ),
        (EVENT_HUBS, {**STRING, "sasl_plain_username": "shop"}, ["not $ConnectionString"]),
        (EVENT_HUBS, {**STRING, "sasl_plain_password": "S3"}, ["Endpoint, SharedAccessKeyName"]),
        (
            EVENT_HUBS.replace("shop", "other"),
            STRING,
            ["is of shop.servicebus.windows.net", "names other.servicebus.windows.net"],
        ),
        (GOOGLE, KEY, ["e-mail address of a service account"]),
        # hosts that do not belong together
        (
            f"{MSK}:9098,{MSK.replace('central', 'west')}:9098",
            token("aws_msk_iam"),
            ["different regions: eu-central-1, eu-west-1"],
        ),
        (
            f"{CONFLUENT},{CONFLUENT.replace('12345', '67890')}",
            KEY,
            ["different clusters: pkc-12345, pkc-67890"],
        ),
    ],
)  # fmt: skip
def test_a_problem_names_what_to_change(servers, login, words):
    (problem,) = told(servers, **login)
    if "warn: " not in words:
        assert problem.startswith("fail: ")
    for word in words:
        assert word in problem


def test_without_tls_nothing_is_sent():
    """The services have no SASL without TLS."""
    for servers, login in ((CONFLUENT, KEY), (EVENT_HUBS, STRING), (f"{MSK}:9096", SCRAM)):
        (problem,) = told(servers, "SASL_PLAINTEXT", **login)
        assert "SASL_PLAINTEXT" in problem
        assert "SASL_SSL" in problem
    (problem,) = told(GOOGLE, "SSL")
    assert "SSL is on port 9192" in problem
    assert "port 9092 has SASL_SSL with OAUTHBEARER or SASL_SSL with PLAIN" in problem


@pytest.mark.parametrize(
    "servers", ["127.0.0.1:9092", "kafka.example:9092", "amazonaws.com.example:9098"]
)
def test_other_clusters_have_no_check(servers):
    assert cloud_of(ClusterSettings(bootstrap_servers=servers)) is None


def test_each_service_has_a_section_in_the_guide():
    guide = Path(__file__).resolve().parents[3] / "docs" / "guides" / "managed-kafka.md"
    headings = " ".join(re.findall("^## (.*)$", guide.read_text(), re.MULTILINE))
    for cloud in CLOUDS:
        assert cloud.name.split()[0] in headings
