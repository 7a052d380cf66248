"""import-xml: files of Bruce and Dory, every option once; and files that are wrong or hostile."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

from aiokq.cli.app import execute
from aiokq.cli.session import Session
from aiokq.errors import ConfigError
from aiokq.gateway import GatewaySettings
from aiokq.gateway.bruce.engine import OLD_MESSAGE_OVERHEAD
from aiokq.gateway.bruce.options import BruceOptions
from aiokq.gateway.bruce_flags import SWITCHES, VALUES
from aiokq.gateway.import_xml import OVERHEAD, import_xml
from aiokq.gateway.xml_values import OPTIONS

KIB, MIB = 1024, 1024 * 1024

COMMON = """\
  <batching>
    <namedConfigs>
      <config name="often">
        <time value="40" /> <messages value="2k" /> <bytes value="disable" />
      </config>
      <config name="seldom">
        <time value="9000" /> <messages value="disable" /> <bytes value="200k" />
      </config>
    </namedConfigs>
    <produceRequestDataLimit value="900k" />
    <messageMaxBytes value="1000012" />
    <combinedTopics enable="true" config="seldom" />
    <defaultTopic action="combinedTopics" config="" />
    <topicConfigs>
      <topic name="clicks" action="perTopic" config="often" />
      <topic name="alarms" action="disable" />
      <topic name="tail.log" action="combinedTopics" />
    </topicConfigs>
  </batching>
  <compression>
    <namedConfigs>
      <config name="plain" type="none" />
      <config name="light" type="snappy" minSize="300" />
    </namedConfigs>
    <sizeThresholdPercent value="80" />
    <defaultTopic config="light" />
    <topicConfigs> <topic name="alarms" config="plain" /> </topicConfigs>
  </compression>
  <topicRateLimiting>
    <namedConfigs>
      <config name="calm" interval="2000" maxCount="3k" />
      <config name="wild" interval="1" maxCount="unlimited" />
      <config name="never" interval="7" maxCount="0" />
    </namedConfigs>
    <defaultTopic config="calm" />
    <topicConfigs>
      <topic name="alarms" config="wild" />
      <topic name='a "b"' config="never" />
    </topicConfigs>
  </topicRateLimiting>
  <initialBrokers>
    <broker host="kafka1" port="9093" /> <broker host="::1" port="9094" />
  </initialBrokers>
"""

BRUCE = f"""<?xml version="1.0" encoding="US-ASCII"?>\n<bruceConfig>\n{COMMON}</bruceConfig>\n"""

DORY_ONLY = """\
  <inputSources>
    <unixDatagram enable="true"> <path value="/run/d/datagrams" /> <mode value="0220" />
    </unixDatagram>
    <unixStream enable="true"> <path value="/run/d/stream" /> <mode value="0666" /> </unixStream>
    <tcp enable="true"> <port value="9876" /> </tcp>
  </inputSources>
  <inputConfig>
    <maxBuffer value="64m" />
    <maxDatagramMsgSize value="48k" />
    <allowLargeUnixDatagrams value="true" />
    <maxStreamMsgSize value="3m" />
  </inputConfig>
  <msgDelivery>
    <topicAutocreate enable="true" />
    <maxFailedDeliveryAttempts value="7" />
    <shutdownMaxDelay value="12000" />
    <dispatcherRestartMaxDelay value="4000" />
    <metadataRefreshInterval value="5" />
    <compareMetadataOnRefresh value="false" />
    <kafkaSocketTimeout value="30" />
    <pauseRateLimitInitial value="3000" />
    <pauseRateLimitMaxDouble value="3" />
    <minPauseDelay value="2000" />
  </msgDelivery>
  <httpInterface>
    <port value="9191" />
    <loopbackOnly value="true" />
    <discardReportInterval value="300" />
    <badMsgPrefixSize value="128" />
  </httpInterface>
  <discardLogging enable="true">
    <path value="/var/log/d/discards" />
    <maxFileSize value="8m" />
    <maxArchiveSize value="40m" />
    <maxMsgPrefixSize value="500" />
    <badMsgPrefixSize value="400" />
  </discardLogging>
  <kafkaConfig> <clientId value="probe" /> <replicationTimeout value="8000" /> </kafkaConfig>
  <msgDebug enable="true">
    <path value="/var/log/d/debug" /> <timeLimit value="600" /> <byteLimit value="10m" />
  </msgDebug>
  <logging>
    <level value="INFO" />
    <stdoutStderr enable="true" />
    <syslog enable="false" />
    <file enable="true"> <path value="/var/log/d/log" /> <mode value="0644" /> </file>
    <logDiscards enable="false" />
  </logging>
"""

DORY = f"<doryConfig>\n{COMMON}{DORY_ONLY}</doryConfig>\n"

SMALL = """<doryConfig>
<initialBrokers><broker host="kafka1" port="9092"/></initialBrokers>
</doryConfig>
"""

FLAGS = {
    "client_id": "probe",
    "config_path": "/etc/bruce.xml",
    "debug_dir": "/var/log/b/debug",
    "discard_log_bad_msg_prefix_size": "500",
    "discard_log_max_archive_size": "40960",
    "discard_log_max_file_size": "8192",
    "discard_log_path": "/var/log/b/discards",
    "discard_report_bad_msg_prefix_size": "128",
    "discard_report_interval": "300",
    "dispatcher_restart_max_delay": "4000",
    "kafka_socket_timeout": "30",
    "log_level": "LOG_INFO",
    "max_failed_delivery_attempts": "7",
    "max_input_msg_size": "49152",
    "metadata_refresh_interval": "5",
    "min_pause_delay": "2000",
    "msg_buffer_max": "65536",
    "msg_debug_byte_limit": "10485760",
    "msg_debug_time_limit": "600",
    "pause_rate_limit_initial": "3000",
    "pause_rate_limit_max_double": "3",
    "protocol_version": "0",
    "receive_socket_mode": "0220",
    "receive_socket_name": "/run/b/datagrams",
    "replication_timeout": "8000",
    "required_acks": "1",
    "shutdown_max_delay": "12000",
    "status_port": "9191",
}


def made(tmp_path: Path, text: str, *flags: str, **options: Any) -> tuple[GatewaySettings, str]:
    """Import a text; return the settings of the new file, and its text."""
    file = tmp_path / "old.xml"
    file.write_text(text)
    result, _ = import_xml(file, flags, **options)
    new = tmp_path / "gateway.toml"
    new.write_text(result)
    return GatewaySettings.load(new), result


def refusal(tmp_path: Path, text: str | bytes, *flags: str) -> str:
    file = tmp_path / "old.xml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        import_xml(file, flags)
    return caught.value.message.replace(str(tmp_path), "DIR")


def check_common(settings: GatewaySettings) -> None:
    """Check what both files say about topics."""
    assert settings.kafka["bootstrap_servers"] == "kafka1:9093,[::1]:9094"
    assert settings.batching.mode == "combined"
    assert settings.combined is not None
    assert settings.combined.model_dump() == {"time_ms": 9000, "messages": None, "bytes": 200 * KIB}
    clicks = settings.of_topic("clicks")
    assert clicks.batching.model_dump() == {
        "mode": "per_topic",
        "time_ms": 40,
        "messages": 2048,
        "bytes": None,
    }
    assert settings.of_topic("alarms").batching.mode == "off"
    assert settings.of_topic("tail.log").batching.mode == "combined"
    assert settings.delivery.produce_request_data_limit == 900 * KIB
    assert settings.limits.max_message_bytes == 1000012 - 26
    assert clicks.compression.model_dump() == {
        "type": "snappy",
        "level": None,
        "min_bytes": 300,
        "max_ratio": 0.8,
    }
    assert settings.of_topic("alarms").compression.type == "none"
    rate = settings.of_topic("clicks").rate_limit
    assert rate is not None
    assert (rate.interval_ms, rate.max_messages) == (2000, 3072)
    assert settings.of_topic("alarms").rate_limit is None
    never = settings.of_topic('a "b"').rate_limit
    assert never is not None
    assert never.max_messages == 0
    assert clicks.empty_key_null
    assert clicks.empty_value_null


def check_delivery(settings: GatewaySettings, table: str) -> None:
    """Check the options that Bruce has as flags, and Dory in its file."""
    delivery = settings.delivery
    assert (delivery.engine, delivery.error_table) == ("bruce", table)
    assert delivery.max_failed_delivery_attempts == 7
    assert delivery.shutdown_max_delay_ms == 12_000
    assert delivery.dispatcher_restart_max_delay_ms == 4_000
    assert (delivery.pause_initial_ms, delivery.pause_max_doublings) == (3_000, 3)
    assert delivery.min_pause_ms == 2_000
    assert (delivery.message_max_bytes, delivery.replication_timeout_ms) == (1000012, 8_000)
    assert delivery.autocreate
    assert (delivery.autocreate_with, delivery.autocreate_timeout_ms) == ("metadata", 21_000)
    discards, debug = settings.discards, settings.debug
    assert (discards.report_interval_s, discards.sample_bytes) == (300, 128)
    assert (discards.log_lines, discards.log_max_prefix_bytes) == (False, 500)
    assert (discards.log_max_file_bytes, discards.log_max_archive_bytes) == (8 * MIB, 40 * MIB)
    assert (debug.time_limit_s, debug.max_bytes) == (600, 10 * MIB)
    assert settings.kafka["client_id"] == "probe"
    assert settings.kafka["metadata_max_age_ms"] == 5 * 60_000
    assert settings.kafka["request_timeout_ms"] == 30_000
    assert settings.pool.max_bytes == 64 * MIB
    assert settings.http is not None
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 9191)
    datagram = settings.inputs[0]
    assert (datagram.mode, datagram.limit) == (0o220, 48 * KIB)
    assert datagram.allow_large_datagrams


def test_the_samples_contain_every_option():
    for section, names in OPTIONS.items():
        assert f"<{section}" in DORY
        for name, attribute in names.items():
            assert f"<{name} {attribute}=" in DORY
    assert FLAGS.keys() == VALUES


def test_a_file_of_dory_keeps_its_meaning(tmp_path: Path):
    settings, text = made(tmp_path, DORY)
    check_common(settings)
    check_delivery(settings, "dory")
    _, stream, tcp = settings.inputs
    assert (stream.path, stream.mode, tcp.port) == ("/run/d/stream", 0o666, 9876)
    assert stream.limit == tcp.limit == 3 * MIB + 4
    assert (stream.idle_ms, stream.idle_when_full_ms) == (0, 10_000)
    # Programs that send half of a message must not take all places for good.
    assert (stream.max_connections, stream.partial_message_ms) == (1024, 30_000)
    for name in ("compareMetadataOnRefresh", "INFO", "/var/log/d/log"):
        assert f"{name}" in text
    # A comment said that the engine compares the size without overhead.
    assert OLD_MESSAGE_OVERHEAD == OVERHEAD
    assert "the size of the batch is compared" not in text


def test_flags_of_bruce_complete_its_file(tmp_path: Path):
    """Bruce had only topics and brokers in its file."""
    flags = [part for flag, value in FLAGS.items() for part in (f"--{flag}", value)]
    switches = [f"--{flag}" for flag in sorted(SWITCHES - {"use_old_input_format"})]
    settings, text = made(tmp_path, BRUCE, *flags, *switches)
    check_common(settings)
    check_delivery(settings, "seed")
    assert settings.kafka["acks"] == BruceOptions.of(settings).acks == 1
    assert settings.inputs[0].path == "/run/b/datagrams"
    for name in ("--daemon", "--protocol_version", "--omit_timestamp", "--use_old_output_format"):
        assert name in text


def test_defaults_of_dory_are_written_out(tmp_path: Path):
    settings, text = made(tmp_path, SMALL)
    delivery = settings.delivery
    assert (delivery.max_failed_delivery_attempts, delivery.shutdown_max_delay_ms) == (5, 30_000)
    assert (delivery.pause_initial_ms, delivery.pause_max_doublings) == (5_000, 4)
    assert (delivery.min_pause_ms, delivery.dispatcher_restart_max_delay_ms) == (5_000, 5_000)
    assert settings.http is not None
    assert settings.http.port == 9090
    assert settings.kafka["client_id"] == "dory"
    assert (settings.kafka["metadata_max_age_ms"], settings.kafka["request_timeout_ms"]) == (
        900_000,
        60_000,
    )
    assert settings.pool.max_bytes == 128 * MIB
    assert settings.batching.mode == "off"
    assert settings.compression.type == "none"
    assert settings.rate_limit is None
    assert "default of Dory" in text


def test_a_discard_log_with_the_defaults_of_dory_gets_limits_that_fit(tmp_path: Path):
    """Dory refuses its own default of maxFileSize, and has no limit of keys and values."""
    log = '<discardLogging enable="true"><path value="/d"/></discardLogging></doryConfig>'
    settings, _ = made(tmp_path, SMALL.replace("</doryConfig>", log))
    assert settings.discards.log_max_file_bytes == MIB
    assert 100_000 < settings.discards.log_max_prefix_bytes < MIB
    small = log.replace("/>", '/><maxFileSize value="1k"/><maxArchiveSize value="2k"/>')
    settings, _ = made(tmp_path, SMALL.replace("</doryConfig>", small))
    assert settings.discards.log_max_archive_bytes == settings.discards.log_max_file_bytes


def test_a_broker_without_port_gets_the_port_of_the_code(tmp_path: Path):
    """Dory's code has 9002 there, Bruce's 9092; the file says so."""
    dory = SMALL.replace(' port="9092"', "")
    settings, text = made(tmp_path, dory)
    assert settings.kafka["bootstrap_servers"] == "kafka1:9002"
    assert "error in" in text
    settings, _ = made(tmp_path, dory.replace("doryConfig", "bruceConfig"))
    assert settings.kafka["bootstrap_servers"] == "kafka1:9092"
    assert settings.kafka["client_id"] == "bruce"
    assert settings.delivery.error_table == "seed"


def test_a_file_with_the_root_of_bruce_and_sections_of_dory_is_dorys(tmp_path: Path):
    settings, _ = made(tmp_path, DORY.replace("doryConfig", "bruceConfig"))
    assert settings.delivery.error_table == "dory"


@pytest.mark.parametrize(("given", "number"), [('"0"', 0), ('"1"', 1), ('"-1"', -1), ('"all"', -1)])
def test_acks_may_be_a_text(given: str, number: int):
    """As for every client; the engine compared the text with the number 0."""
    kafka = tomllib.loads(f"acks = {given}")
    settings = GatewaySettings.checked({"kafka": kafka, "delivery": {"engine": "bruce"}})
    assert BruceOptions.of(settings).acks == number


def test_a_topic_without_a_limit_does_not_inherit_the_limit_of_the_default(tmp_path: Path):
    """Bruce and Dory give a topic a whole configuration, this gateway inherits single options."""
    text = DORY.replace(
        '<defaultTopic action="combinedTopics" config="" />',
        '<defaultTopic action="perTopic" config="seldom" />',
    )
    settings, _ = made(tmp_path, text)
    assert settings.batching.bytes == 200 * KIB
    assert settings.of_topic("clicks").batching.bytes == 2**31 - 1
    assert settings.of_topic("clicks").batching.time_ms == 40


def test_gzip_levels(tmp_path: Path):
    for level, expected in (("9", 9), ("-1", None), ("0", None)):
        config = f'type="gzip" minSize="1k" level="{level}"'
        settings, _ = made(tmp_path, DORY.replace('type="snappy" minSize="300"', config))
        assert settings.compression.level == expected
        assert settings.compression.type == ("none" if level == "0" else "gzip")


def test_http_beyond_loopback_needs_a_token(tmp_path: Path):
    open_http = DORY.replace('<loopbackOnly value="true" />', "")
    settings, text = made(tmp_path, open_http)
    assert settings.http is not None
    assert settings.http.host == "127.0.0.1"
    assert "--token-file" in text
    settings, _ = made(tmp_path, open_http, token_file="/etc/token")
    assert settings.http is not None
    assert settings.http.host == "0.0.0.0"


def test_a_decimal_mode_of_bruce_is_refused(tmp_path: Path):
    """Bruce reads 777 as a decimal number, which is mode 01411."""
    flags = ("--receive_socket_name", "/s", "--receive_socket_mode", "777")
    assert "octal mode 1411" in refusal(tmp_path, BRUCE, *flags)


WRONG = [
    ('<maxBuffer value="64m" />', '<maxBufer value="64m" />', "did you mean <maxBuffer>?"),
    ('<maxBuffer value="64m" />', '<maxBuffer value="64g" />', "'64g' is no whole number"),
    ('<maxBuffer value="64m" />', '<maxBuffer size="64m" />', "`value` is missing"),
    ('<maxBuffer value="64m" />', '<maxBuffer value="1" /><maxBuffer value="1" />', "twice"),
    ('<maxBuffer value="64m" />', '<maxBuffer value="1"><a/></maxBuffer>', "contains no elements"),
    ('<minPauseDelay value="2000" />', '<minPauseDelay value="-1" />', "no whole number"),
    ('<minPauseDelay value="2000" />', '<minPauseDelay value="9999999999" />', "is not between"),
    ('<mode value="0220" />', '<mode value="220" />', "leading 0"),
    ('<path value="/run/d/stream" />', '<path value="run" />', "is not absolute"),
    ('<tcp enable="true">', '<tcp enable="maybe">', "neither true nor false"),
    ('config="often" />', 'config="oftn" />', "no <config> with the name 'oftn'"),
    ('action="disable"', 'action="off"', "is no action"),
    ('<combinedTopics enable="true" config="seldom" />', "", "<combinedTopics> is not enabled"),
    ('type="snappy"', 'type="lzo"', "is no type"),
    ('<sizeThresholdPercent value="80" />', '<sizeThresholdPercent value="101" />', "between"),
    ('interval="2000"', 'interval="0"', "is not between"),
    ('<defaultTopic config="calm" />', "", "<defaultTopic> is missing"),
    ('<broker host="kafka1" port="9093" />', '<brokr host="k" />', "contains <broker> only"),
    ('port="9093"', 'port="99999"', "is not between"),
    ('<time value="40" />', "<time>40</time>", "text is not expected"),
    ('name="alarms" action', 'name="clicks" action', "occurs twice"),
]


@pytest.mark.parametrize(("old", "new", "text"), WRONG)
def test_errors_name_the_file_the_line_and_the_element(
    tmp_path: Path, old: str, new: str, text: str
):
    assert old in DORY
    wrong = DORY.replace(old, new, 1)
    message = refusal(tmp_path, wrong)
    assert text in message
    place, element, _ = message.split(": ", 2)
    assert place.startswith("DIR/old.xml:")
    line = wrong.splitlines()[int(place.rsplit(":", 1)[1]) - 1]
    assert element.startswith("<doryConfig")
    assert f"<{element.strip('<>').rsplit('/', 1)[-1]}" in line


def test_flags_that_are_wrong_are_named(tmp_path: Path):
    assert "did you mean --status_port?" in refusal(tmp_path, BRUCE, "--status_prt", "1")
    assert "needs a value" in refusal(tmp_path, BRUCE, "--status_port")
    assert "--status_port: 'x' is no whole number" in refusal(tmp_path, BRUCE, "--status_port", "x")
    assert "twice" in refusal(tmp_path, BRUCE, "--status_port=1", "--status_port=2")
    assert "has no value" in refusal(tmp_path, BRUCE, "--daemon=1")
    assert "-1, 0 and 1" in refusal(tmp_path, BRUCE, "--required_acks", "2")
    assert "not the older" in refusal(tmp_path, BRUCE, "--use_old_input_format")
    assert "no flags of Bruce" in refusal(tmp_path, DORY, "--daemon")


def test_hostile_files_are_refused(tmp_path: Path):
    """No entity is expanded, no other file is read, and depth and size are bounded."""
    bomb = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(20))
    assert "entities are refused" in refusal(
        tmp_path, f'<!DOCTYPE doryConfig [<!ENTITY e0 "ha">{bomb}]><doryConfig>&e20;</doryConfig>'
    )
    outside = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><doryConfig>&x;</doryConfig>'
    assert "entities are refused" in refusal(tmp_path, outside)
    assert "not XML" in refusal(tmp_path, "<doryConfig>&x;</doryConfig>")
    assert "too deeply" in refusal(tmp_path, "<doryConfig>" + "<a>" * 100_000)
    assert "too many elements" in refusal(tmp_path, "<doryConfig>" + "<a/>" * 200_000)
    assert "not XML" in refusal(tmp_path, b"")
    assert "not XML" in refusal(tmp_path, "<doryConfig>")
    assert "decoded" in refusal(tmp_path, '<?xml version="1.0" encoding="no-such"?><doryConfig/>')
    assert "must be <bruceConfig> or <doryConfig>" in refusal(tmp_path, "<html/>")
    assert "is a directory" in refusal_of(tmp_path).lower()
    large = tmp_path / "old.xml"
    with large.open("wb") as file:
        file.truncate(100 * MIB)
    assert "more than" in refusal_of(large)


def refusal_of(file: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        import_xml(file)
    return caught.value.message


def test_damaged_files_raise_nothing_but_config_error(tmp_path: Path):
    """Each damaged file is imported to a file that checks, or refused."""
    file = tmp_path / "old.xml"
    for seed in range(300):
        source = random.Random(seed)
        data = bytearray(DORY.encode())
        for _ in range(source.randrange(1, 4)):
            start = source.randrange(len(data))
            end = start + source.randrange(12)
            data[start:end] = source.choice(
                [b"", bytes([source.randrange(256)]), b"0", b'"', b"9" * 30, b"<", b"\x7f"]
            )
        file.write_bytes(data)
        try:
            import_xml(file)
        except ConfigError:
            continue


def test_the_command_prints_a_file_that_checks(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    old, new = tmp_path / "old.xml", tmp_path / "gateway.toml"
    old.write_text(BRUCE)
    arguments = ["gateway", "import-xml", str(old), "--receive_socket_name", "/run/b/s"]
    assert run([*arguments, "--msg_buffer_max=2048", "--required_acks", "-1"]) == 0
    printed = capfd.readouterr()
    new.write_text(printed.out)
    assert "HTTP" in printed.err
    assert run(["gateway", "check", str(new)]) == 0
    settings = GatewaySettings.load(new)
    assert (settings.pool.max_bytes, settings.kafka["acks"]) == (2 * MIB, -1)
    assert run(["gateway", "import-xml", str(old), "--nothing"]) == 1
    assert "is no flag of Bruce" in capfd.readouterr().err


def run(arguments: list[str]) -> int:
    return execute(arguments, Session())
