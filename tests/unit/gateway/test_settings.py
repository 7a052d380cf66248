"""GatewaySettings: the file, the options in force for a topic, and what errors say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiokq import ProducerSettings
from aiokq.errors import ConfigError
from aiokq.gateway import GatewaySettings
from aiokq.gateway.settings import OF_GATEWAY
from aiokq.gateway.settings_tables import TABLES
from aiokq.gateway.sizes import lines_of

FILE = """\
[kafka]                              # any client setting by its name, TLS and SASL included
bootstrap_servers = "127.0.0.1:9092"
[[inputs]]
type = "unix_datagram"               # unix_stream, tcp; any number of each
path = "/run/aiokq/gateway.sock"
mode = "0222"
[[inputs]]
type = "tcp"
port = 9000
[http]
port = 9690
[pool]
max_bytes = "128 MiB"
[delivery]
engine = "producer"
[batching]
bytes = "256k"
[topics.orders]
rate_limit = "unlimited"
empty_value = "null"
[topics.orders.batching]
time_ms = 5
[topics."web.log".compression]
type = "zstd"
level = 3
"""


def load(tmp_path: Path, text: str) -> GatewaySettings:
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    return GatewaySettings.load(file)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return caught.value.message.replace(str(tmp_path), "DIR")


def test_a_file_is_read_with_units_modes_and_defaults(tmp_path: Path):
    """The text of the issue is a valid file."""
    settings = load(tmp_path, FILE)
    datagram, tcp = settings.inputs
    assert (datagram.mode, datagram.limit, tcp.limit) == (0o222, 65536, 2 * 1024 * 1024)
    assert settings.pool.max_bytes == 128 * 1024 * 1024
    assert settings.batching.bytes == 256 * 1024
    assert settings.delivery.shutdown_max_delay_ms == 30_000


def test_a_topic_has_its_own_options_beside_those_of_the_file(tmp_path: Path):
    """A topic that sets one limit of its batches keeps the others."""
    settings = load(tmp_path, FILE + "[rate_limit]\ninterval_ms = 1000\nmax_messages = 5\n")
    orders, other = settings.of_topic("orders"), settings.of_topic("other")
    assert (orders.batching.time_ms, orders.batching.bytes) == (5, 256 * 1024)
    assert orders.rate_limit is None
    assert (orders.empty_key_null, orders.empty_value_null) == (True, True)
    assert other.rate_limit is not None
    assert (other.rate_limit.max_messages, other.empty_value_null) == (5, False)
    assert settings.of_topic("web.log").compression.type == "zstd"


REFUSED = [
    (
        "path =",
        "pth =",
        "DIR/gateway.toml:5: [[inputs]] #1 has no option 'pth': did you mean 'path",
    ),
    ('"0222"', '"9"', "DIR/gateway.toml:6: [[inputs]] #1 `mode`: must be three octal digits"),
    ("port = 9000", "", "DIR/gateway.toml:7: [[inputs]] #2 an input of type tcp needs `port`"),
    ("port = 9000", "port = 99999", "DIR/gateway.toml:9: [[inputs]] #2 `port`:"),
    (
        "[[inputs]]",
        "[[input]]",
        "DIR/gateway.toml:3: there is no table or option 'input': did you mean 'inputs'",
    ),
    ("[pool]", "[pol]", "DIR/gateway.toml:12: there is no table or option 'pol': did you mean"),
    ("128 MiB", "much", "DIR/gateway.toml:13: [pool] `max_bytes`: must be a number of bytes"),
    (
        "bootstrap_servers",
        "bootstrap_server",
        "DIR/gateway.toml:2: [kafka] there is no setting 'bootstrap_server': did you mean "
        "bootstrap_servers?",
    ),
    ('"producer"', '"other"', "DIR/gateway.toml:15: [delivery] `engine`: input should be"),
    ("time_ms", "tim_ms", "DIR/gateway.toml:22: [topics.orders.batching] has no option 'tim_ms'"),
    ('"unlimited"', '"no"', "DIR/gateway.toml:19: [topics.orders] `rate_limit`: input should be"),
    ("level = 3", "level = 99", "DIR/gateway.toml:25: [topics.web.log.compression] `level`:"),
    ("port = 9690", 'host = "0.0.0.0"', "it needs `token_file`"),
    ("/run/aiokq/gateway.sock", "gateway.sock", "must be absolute"),
    ("[http]", "[http", "DIR/gateway.toml:10:"),
    ('type = "zstd"', 'type = "snappy"', "compression of type snappy has no `level`"),
    ('mode = "0222"', "owner = -1", "DIR/gateway.toml:6: [[inputs]] #1 `owner`: there is no user"),
    ('mode = "0222"', "group = 4294967295", "`group`: there is no user or group 4294967295"),
    ('mode = "0222"', "allowed_users = [0, 4294967296]", "there is no user or group 4294967296"),
    ("gateway.sock", "gateway\\u0000.sock", "gateway.toml:5: [[inputs]] #1 `path`: must not"),
    ('engine = "producer"', '[spool]\npath = "/var/\\u0000"', "must not have a NUL"),
    (
        'mode = "0222"',
        'allowed_users = [7, "a\\u0000"]',
        "gateway.toml:6: [[inputs]] #1 `allowed_users`: must not have a NUL",
    ),
    (
        "[[inputs]]",
        'ssl_cafile = "/a\\u0000"\n[[inputs]]',
        "gateway.toml:3: [kafka] `ssl_cafile` must not have a NUL",
    ),
    (
        "[[inputs]]",
        'ssl_cipher_suites = ["a", "b\\u0000"]\n[[inputs]]',
        "gateway.toml:3: [kafka] `ssl_cipher_suites` must not have a NUL",
    ),
    ("time_ms = 5", 'mode = "combined"', '"combined" belongs to the engine bruce'),
]


@pytest.mark.parametrize(("old", "new", "text"), REFUSED, ids=[one[1] for one in REFUSED])
def test_an_error_names_file_line_and_the_nearest_option(
    tmp_path: Path, old: str, new: str, text: str
):
    """An operator finds the place without reading the whole file."""
    assert text in refusal(tmp_path, FILE.replace(old, new, 1))


OF_BRUCE = {
    "error_table": '"seed"',
    "max_failed_delivery_attempts": "5",
    "produce_request_data_limit": '"1 MiB"',
    "pause_initial_ms": "5000",
    "pause_max_doublings": "4",
    "min_pause_ms": "5000",
    "dispatcher_restart_max_delay_ms": "5000",
}


@pytest.mark.parametrize("option", OF_BRUCE)
def test_options_of_the_engine_bruce_are_refused_by_name(tmp_path: Path, option: str):
    """Ignoring them would change what the file promises."""
    line = f"{option} = {OF_BRUCE[option]}\n"
    text = refusal(tmp_path, FILE.replace('engine = "producer"\n', 'engine = "producer"\n' + line))
    assert text.startswith(f"DIR/gateway.toml:16: [delivery] `{option}` belongs to the engine bru")
    bruce = load(tmp_path, FILE.replace('engine = "producer"\n', 'engine = "bruce"\n' + line))
    assert getattr(bruce.delivery, option) is not None


def test_combined_batches_are_refused_by_name(tmp_path: Path):
    """A table of the engine bruce."""
    text = refusal(tmp_path, FILE + "[combined]\ntime_ms = 500\n")
    assert text.startswith("DIR/gateway.toml:26: [combined] belongs to the engine bruce")


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("linger_ms", 5, "time_ms"),
        ("compression_type", "zstd", "[compression]"),
        ("transactional_id", "x", "without transactions"),
        ("allow_auto_create_topics", True, "autocreate"),
    ],
)
def test_client_settings_that_the_gateway_sets_are_refused(name: str, value: object, hint: str):
    """The error names the option to use instead."""
    with pytest.raises(ConfigError, match=name) as caught:
        GatewaySettings.checked({"kafka": {name: value}})
    assert hint in caught.value.message


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ssl_ca_location", "ssl_cafile"),
        ("ssl.ca.location", "ssl_cafile"),
        ("sasl_password", "sasl_plain_password"),
        ("ssl_truststore_path", "ssl_truststore_location"),
        ("security-protocol", "security_protocol"),
    ],
)
def test_an_unknown_client_setting_is_refused_with_the_one_that_means_the_same(
    name: str, meant: str
):
    """The error suggested the most similar name: the keystore in place of the authorities."""
    with pytest.raises(ConfigError) as caught:
        GatewaySettings.checked({"kafka": {name: "x"}})
    assert caught.value.message == f"[kafka] there is no setting {name!r}: did you mean {meant}?"


def test_a_client_setting_with_dots_is_refused_with_its_name_here(tmp_path: Path):
    """TOML reads it as a table, and the error named the first part only."""
    file = FILE.replace("[[inputs]]", 'ssl.truststore.location = "/ca.pem"\n[[inputs]]', 1)
    assert refusal(tmp_path, file) == (
        "DIR/gateway.toml:3: [kafka] there is no setting 'ssl.truststore.location': did you mean "
        "ssl_truststore_location?"
    )


@pytest.mark.parametrize("name", ["enable_ssl_certificate_verification", "broker", "message_max"])
def test_a_client_setting_that_is_like_none_gets_no_suggestion(name: str):
    """A wrong suggestion is worse than none."""
    with pytest.raises(ConfigError) as caught:
        GatewaySettings.checked({"kafka": {name: "x"}})
    assert caught.value.message == f"[kafka] there is no setting {name!r}"


@pytest.mark.parametrize("name", OF_GATEWAY)
def test_the_error_of_a_refused_client_setting_names_options_that_exist(name: str):
    """`ssl_context` named a setting that does not exist."""
    options = {option for table in TABLES.values() for option in table.model_fields}
    named = set(re.findall("`([a-z_]+)`", OF_GATEWAY[name]))
    assert named <= options | ProducerSettings.model_fields.keys()
    assert name in ProducerSettings.model_fields


@pytest.mark.parametrize("name", ["enable_idempotence", "retries", "delivery_timeout_ms"])
def test_client_settings_of_the_engine_producer_are_refused_by_name(tmp_path: Path, name: str):
    """The engine bruce ignored them: its file promised an idempotent producer."""
    file = FILE.replace("[[inputs]]", f"{name} = 100000\n[[inputs]]", 1)
    file = file.replace("100000", "true") if name == "enable_idempotence" else file
    load(tmp_path, file)
    text = refusal(tmp_path, file.replace('"producer"', '"bruce"'))
    assert text.startswith(f"DIR/gateway.toml:3: [kafka] `{name}` belongs to the engine producer")


def test_a_wrong_client_setting_has_its_line_with_the_engine_bruce(tmp_path: Path):
    """Not that of the table."""
    file = FILE.replace("[[inputs]]", "acks = 7\n[[inputs]]", 1).replace('"producer"', '"bruce"')
    assert refusal(tmp_path, file).startswith("DIR/gateway.toml:3: [kafka] acks: must be 0, 1, -1")


def test_client_settings_are_checked_by_the_client():
    """Values, and contradictions between them."""
    with pytest.raises(ConfigError, match=r"\[kafka\] acks: must be 0, 1, -1 or 'all', not 7"):
        GatewaySettings.checked({"kafka": {"acks": 7}})
    with pytest.raises(ConfigError, match="enable_idempotence conflicts with acks"):
        GatewaySettings.checked({"kafka": {"acks": 1, "enable_idempotence": True}})


def test_arguments_come_in_addition_to_a_file(tmp_path: Path):
    """Servers and HTTP port replace those of the file, inputs are added."""
    settings = GatewaySettings.of(
        load(tmp_path, FILE), bootstrap_servers="h:1", unix_stream="/s", tcp=1, http=2
    )
    assert settings.kafka["bootstrap_servers"] == "h:1"
    assert [one.where for one in settings.inputs] == [
        "/run/aiokq/gateway.sock",
        "127.0.0.1:9000",
        "/s",
        "127.0.0.1:1",
    ]
    assert settings.http is not None
    assert settings.http.port == 2
    with pytest.raises(ConfigError, match="given twice"):
        GatewaySettings.of(settings, unix_stream="/s")


TWICE = [
    (
        '"tcp"\nport = 9000',
        '"unix_stream"\npath = "/run//aiokq/./gateway.sock"',
        ":9: [[inputs]] #2 `path`: /run//aiokq/./gateway.sock is given twice: it is that of "
        "[[inputs]] #1, too",
    ),
    (
        "port = 9690",
        'port = 9690\n[[inputs]]\ntype = "tcp"\nport = 9000',
        ":14: [[inputs]] #3 `port`: 127.0.0.1:9000 is given twice: [[inputs]] #2 listens at "
        "127.0.0.1:9000",
    ),
    ("port = 9690", "port = 9000", ":11: [http] `port`: 127.0.0.1:9000 is given twice: [[inpu"),
    ("port = 9000", "port = 9690", ":11: [http] `port`: 127.0.0.1:9690 is given twice: [[inpu"),
    (
        "port = 9690",
        'host = "0.0.0.0"\ntoken_file = "/t"\nport = 9000',
        ":13: [http] `port`: 0.0.0.0:9000 is given twice",
    ),
    ("port = 9690", 'host = "localhost"\nport = 9000', ":12: [http] `port`: localhost:9000 is"),
    (
        "[pool]",
        '[discards]\nlog_path = "/run/aiokq/gateway.sock"\n[pool]',
        ":13: [discards] `log_path`: /run/aiokq/gateway.sock is given twice",
    ),
    (
        "[pool]",
        '[debug]\ndirectory = "/var/lib/s"\n[spool]\npath = "/var/lib/s/"\n[pool]',
        ":13: [debug] `directory`: /var/lib/s is given twice: it is that of [spool], too",
    ),
]


@pytest.mark.parametrize(("old", "new", "text"), TWICE, ids=[one[1] for one in TWICE])
def test_a_port_or_path_of_two_parts_is_refused(tmp_path: Path, old: str, new: str, text: str):
    """Regression: the second of them failed at the start, or replaced the file of the first."""
    assert refusal(tmp_path, FILE.replace(old, new, 1)).startswith("DIR/gateway.toml" + text)


@pytest.mark.parametrize(
    "new", ['host = "::1"\nport = 9000', 'host = "127.0.0.2"\nport = 9000', "port = 0"]
)
def test_one_port_of_two_addresses_is_no_error(tmp_path: Path, new: str):
    load(tmp_path, FILE.replace("port = 9690", new).replace("9000", "0", new == "port = 0"))


def test_batching_needs_a_limit():
    """Otherwise messages would wait forever."""
    with pytest.raises(ConfigError, match=r"\[batching\] needs one of"):
        GatewaySettings.checked({"batching": {}})
    assert GatewaySettings.checked({"batching": {"mode": "off"}}).batching.mode == "off"


@pytest.mark.parametrize(
    ("text", "size"),
    [("1k", 1024), ("1 kB", 1000), ("2m", 2 * 1024**2), ("1 GiB", 1024**3), (70000, 70000)],
)
def test_byte_sizes(text: str | int, size: int):
    """Numbers, Bruce's letters, and units."""
    assert GatewaySettings.checked({"batching": {"bytes": text}}).batching.bytes == size


@pytest.mark.parametrize("text", ["1 x", "-1", "", "1.5 MiB", True])
def test_other_texts_are_no_byte_sizes(text: str | bool):
    """A negative size, a fraction, an unknown unit."""
    with pytest.raises(ConfigError, match="bytes"):
        GatewaySettings.checked({"batching": {"bytes": text}})


def test_lines_of_dotted_names_arrays_and_quoted_tables():
    """The forms in which TOML names an option."""
    text = '[a.b]\nc = 1\n[["x.y"]]\nz.w = 2\n[["x.y"]]\nq = 3\n'
    lines = lines_of(text)
    assert lines[("a", "b", "c")] == 2
    assert lines[("x.y", 0, "z", "w")] == 4
    assert lines[("x.y", 1, "q")] == 6


def test_a_missing_file_is_named(tmp_path: Path):
    """Not a traceback."""
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml: No such file"):
        GatewaySettings.load(tmp_path / "none.toml")


SECURED = """\
[kafka]
bootstrap_servers = "127.0.0.1:9092"
security_protocol = "SASL_PLAINTEXT"
sasl_mechanism = "SCRAM-SHA-256"
sasl_plain_username = "gateway"
sasl_plain_password = "S3CR3T"
[[inputs]]
type = "unix_datagram"
path = "/run/aiokq/gateway.sock"
"""


def test_client_settings_may_need_each_other(tmp_path: Path) -> None:
    """Regression: each was checked alone, so that no gateway could log in. A repr has no secret."""
    file = tmp_path / "gateway.toml"
    file.write_text(SECURED)
    settings = GatewaySettings.load(file)
    assert settings.kafka["sasl_plain_password"] == "S3CR3T"
    assert "S3CR3T" not in repr(settings)
    file.write_text(SECURED.replace('sasl_plain_password = "S3CR3T"\n', ""))
    with pytest.raises(ConfigError, match=r":1: \[kafka\] .* needs sasl_plain_username and"):
        GatewaySettings.load(file)
    file.write_text(SECURED.replace("127.0.0.1:9092", "nowhere"))
    with pytest.raises(ConfigError, match=r":2: \[kafka\]"):
        GatewaySettings.load(file)
