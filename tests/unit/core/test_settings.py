"""Settings: names, strings, files and error messages."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Literal

import pytest
from pydantic import Field, SecretStr, ValidationError, model_validator

from aiokq.consumer.settings import ConsumerSettings
from aiokq.core.errors import ConfigError, ConfigWarning
from aiokq.core.settings import OF_LIBRDKAFKA, Settings
from aiokq.producer.settings import ProducerSettings


class Sample(Settings):
    linger_ms: int = Field(default=5, ge=0, le=1000)
    """How long to wait."""
    enable_idempotence: bool = True
    acks: Literal["all"] | int = "all"
    topics: tuple[str, ...] = ()
    racks: list[str] | None = None
    bootstrap_servers: str | Sequence[str] = ()
    sasl_plain_password: SecretStr | None = None
    private_key: str = Field(default="", repr=False, max_length=3)

    @model_validator(mode="after")
    def _agree(self) -> Sample:
        if self.linger_ms == 999:
            raise ConfigError("linger_ms 999 conflicts with acks")
        return self


def test_explicit_settings_are_distinguished_from_defaults():
    """enable_idempotence is turned off automatically unless it was set; then it is an error."""
    sample = Sample(linger_ms=5)
    assert sample.linger_ms == 5
    assert sample.explicit == {"linger_ms"}
    assert sample.with_overrides(topics=["a"]).explicit == {"linger_ms", "topics"}


def test_an_unknown_name_is_refused_with_the_nearest_one():
    """An ignored typo would go unnoticed."""
    with pytest.raises(ConfigError, match="'linger_sm': did you mean linger_ms"):
        Sample(linger_sm=5)
    with pytest.raises(ConfigError, match=r"no setting 'xyzzy'$"):
        Sample(xyzzy=1)
    with pytest.raises(ConfigError, match="linger_ms"):
        Sample().with_overrides(lingerms=1)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ssl_ca_location", "ssl_cafile"),
        ("ssl_key_location", "ssl_keyfile"),
        ("sasl_password", "sasl_plain_password"),  # ssl_password is more similar
        ("metadata_broker_list", "bootstrap_servers"),
        ("request_required_acks", "acks"),
    ],
)
def test_a_name_of_librdkafka_is_refused_with_the_setting_that_means_the_same(
    tmp_path, name, meant
):
    """The similar name was suggested, which meant something else, or none."""
    with pytest.raises(ConfigError, match=f"'{name}': did you mean {meant}\\?"):
        ProducerSettings(**{name: "x"})
    path = tmp_path / "client.properties"
    path.write_text(f"{name.replace('_', '.')}=x\n")
    with pytest.raises(ConfigError, match=f"did you mean {meant.replace('_', '.')}\\?"):
        ProducerSettings.from_properties(path)


def test_an_error_about_a_file_does_not_keep_its_bytes(tmp_path):
    """An UnicodeDecodeError has the whole file, and tools that collect errors show its attributes.

    The position is in the message, with no more than one byte.
    """
    path = tmp_path / "client.properties"
    path.write_bytes(b"sasl.jaas.config=s3cret\xff\n")
    with pytest.raises(ConfigError, match="can't decode byte 0xff in position 23") as caught:
        ProducerSettings.from_properties(path)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_every_suggestion_for_a_name_of_librdkafka_is_a_setting():
    known = {
        name.replace("_", ".")
        for kind in (ProducerSettings, ConsumerSettings)
        for name in kind.model_fields
    }
    assert set(OF_LIBRDKAFKA.values()) <= known
    assert not OF_LIBRDKAFKA.keys() & known


def test_a_value_out_of_range_names_setting_range_and_value():
    """Pydantic's own error has four lines and a link."""
    with pytest.raises(ConfigError) as caught:
        Sample(linger_ms=2000, enable_idempotence="maybe")
    text = str(caught.value)
    assert "linger_ms: Input should be less than or equal to 1000, not 2000" in text
    assert "enable_idempotence: " in text
    assert "pydantic" not in text
    assert isinstance(caught.value, ValueError)
    assert not isinstance(caught.value, ValidationError)


def test_a_bool_is_not_a_number_and_is_shown_unchanged():
    """The error was "unable to parse string", although no string was given."""
    with pytest.raises(
        ConfigError, match=r"^linger_ms: Input should be a valid integer, not True$"
    ):
        Sample(linger_ms=True)


def test_a_conflict_between_settings_is_a_config_error():
    """Validators of subclasses raise it."""
    with pytest.raises(ConfigError, match=r"^linger_ms 999 conflicts with acks$"):
        Sample(linger_ms=999)


def test_secrets_stay_out_of_errors_and_reprs():
    """Both appear in logs."""
    with pytest.raises(ConfigError) as caught:
        Sample(private_key="hush hush")
    assert "hush" not in str(caught.value)
    sample = Sample(sasl_plain_password="hush", private_key="hu")
    assert "hu" not in repr(sample)


def test_settings_are_frozen():
    """A producer's configuration must not change while it runs."""
    with pytest.raises(ValidationError):
        Sample().linger_ms = 7  # type: ignore[misc]


def test_strings_are_parsed():
    """Environment variables and files contain only strings."""
    sample = Sample(
        linger_ms="7", enable_idempotence="false", acks="1", topics="a, b,,c", racks="r1"
    )
    assert sample.linger_ms == 7
    assert sample.enable_idempotence is False
    assert sample.topics == ("a", "b", "c")
    assert sample.racks == ["r1"]
    assert Sample(bootstrap_servers="a:1,b:2").bootstrap_servers == "a:1,b:2"
    assert Sample(topics="").topics == ()


def test_the_environment_is_read():
    """Containers are configured with environment variables."""
    environ = {"KAFKA_LINGER_MS": "7", "KAFKA_HEAP_OPTS": "-Xmx1g", "LINGER_MS": "9"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample = Sample.from_env(environ=environ, topics=["a"])
    assert sample.linger_ms == 7
    assert sample.explicit == {"linger_ms", "topics"}
    assert Sample.from_env("K_", environ={"K_LINGER_MS": "8"}).linger_ms == 8
    assert Sample.from_env(environ=environ, linger_ms=1).linger_ms == 1


def test_the_real_environment_is_the_default(monkeypatch):
    """Applications rarely pass `environ`."""
    monkeypatch.setitem(os.environ, "KAFKA_LINGER_MS", "11")
    assert Sample.from_env().linger_ms == 11


def test_a_misspelled_environment_variable_warns():
    """The environment is shared with other programs, so an unknown variable cannot be an error."""
    with pytest.warns(ConfigWarning, match="KAFKA_LINGER_M is ignored.*KAFKA_LINGER_MS"):
        Sample.from_env(environ={"KAFKA_LINGER_M": "7"})


def test_a_property_file_is_read_by_javas_names(tmp_path):
    """Users have the file of their Java service."""
    path = tmp_path / "client.properties"
    path.write_text("# comment\nlinger.ms=7\nenable.idempotence=false\ntopics=a,\\\n  b\n")
    sample = Sample.from_properties(path, racks=["r"])
    assert (sample.linger_ms, sample.enable_idempotence) == (7, False)
    assert sample.topics == ("a", "b")
    assert sample.explicit == {"linger_ms", "enable_idempotence", "topics", "racks"}


def test_names_that_only_java_has_are_ignored_with_a_warning(tmp_path):
    """The file of a Java producer names its serializers."""
    path = tmp_path / "client.properties"
    path.write_text("key.serializer=org.apache.X\nlinger.ms=7\n")
    with pytest.warns(ConfigWarning, match=r"key\.serializer is ignored: pass a serializer"):
        assert Sample.from_properties(path).linger_ms == 7


def test_a_client_file_of_a_cloud_service_is_read(tmp_path):
    """Such files set names to their defaults, which were refused as unknown."""
    path = tmp_path / "client.properties"
    path.write_text(
        "client.dns.lookup=use_all_dns_ips\nssl.trustmanager.algorithm=PKIX\n"
        "send.buffer.bytes=131072\nreceive.buffer.bytes=65536\nlinger.ms=7\n"
    )
    with pytest.warns(ConfigWarning) as caught:
        assert Sample.from_properties(path).linger_ms == 7
    assert len(caught) == 4


def test_retries_in_a_file_is_ignored_with_a_warning(tmp_path):
    """A file shared by a producer and an admin client was refused for the admin client."""
    path = tmp_path / "client.properties"
    path.write_text("retries=5\nlinger.ms=7\n")
    with pytest.warns(ConfigWarning, match=r"retries is ignored: .*default\.api\.timeout\.ms"):
        assert Sample.from_properties(path).linger_ms == 7


def test_other_unknown_names_in_a_file_are_refused_in_javas_spelling(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("linger.sm=7\n")
    with pytest.raises(ConfigError, match=r"client\.properties.*did you mean linger\.ms"):
        Sample.from_properties(path)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("share.acquire.mode", "share groups"),
        ("transaction.two.phase.commit.enable", "KIP-939"),
    ],
)
def test_a_kafka_setting_that_is_not_supported_yet_is_named_as_such(tmp_path, name, what):
    """The error was "no setting: did you mean ...", as if the name were misspelled."""
    path = tmp_path / "client.properties"
    path.write_text(f"linger.ms=7\n{name}=x\n")
    with pytest.raises(
        ConfigError, match=f"client.properties: {name} is not supported yet.*{what}"
    ):
        Sample.from_properties(path)
    keyword = name.replace(".", "_")
    with pytest.raises(ConfigError, match=f"^{keyword} is not supported yet"):
        Sample(**{keyword: "x"})
    with pytest.raises(ConfigError, match="there is no setting 'sharex'"):
        Sample(sharex="x")


def test_an_unreadable_file_is_a_config_error(tmp_path):
    """The command line shows one line instead of a traceback."""
    with pytest.raises(ConfigError, match="cannot read settings"):
        Sample.from_properties(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot read settings"):
        Sample.from_properties(tmp_path / "binary")


def test_attribute_docstrings_are_the_descriptions():
    """The reference page is generated from the descriptions."""
    assert Sample.model_fields["linger_ms"].description == "How long to wait."
