"""Config providers: which values they give, and that a missing value never passes as text."""

from __future__ import annotations

import os

import pytest

from aiokq.broker.config.settings import broker_settings
from aiokq.cluster.settings import ClusterSettings
from aiokq.core.config_providers import resolve_variables
from aiokq.core.errors import ConfigError

PACKAGE = "org.apache.kafka.common.config.provider"
PROVIDERS: dict[str, object] = {
    "config.providers": "file, env,dir",
    "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
    "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider",
}


def resolve(value: object, environ: dict[str, str] | None = None, **more: str) -> object:
    given = {**PROVIDERS, **{f"config.providers.{k}": v for k, v in more.items()}, "x": value}
    resolved = resolve_variables(given, environ=environ or {})
    assert list(resolved) == ["x"]
    return resolved["x"]


def refused(value: str, environ: dict[str, str] | None = None, **more: str) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(value, environ, **more)
    assert caught.value.__cause__ is None
    assert "s3cr3t" not in str(caught.value)
    return caught.value.message


@pytest.fixture
def secrets(tmp_path):
    """A property file, and a directory with a file, and a symbolic link as Kubernetes makes it."""
    (tmp_path / "s.properties").write_text("a=s3cr3t-a\nb\\:c = s3cr3t-\\u00e4\nempty=\n")
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "password").write_text("s3cr3t-d\n")
    (tmp_path / "password").symlink_to("..data/password")
    return tmp_path


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("${file:DIR/s.properties:a}", "s3cr3t-a"),
        ("${file:DIR/s.properties:b:c}", "s3cr3t-ä"),
        ("${file:DIR/s.properties:empty}", ""),
        ("${dir:DIR:password}", "s3cr3t-d"),
        ("${env:NAME}", "s3cr3t-n"),
        ("${env::NAME}", "s3cr3t-n"),
        ('u="${env:NAME}" p="${env:OTHER}";', 'u="s3cr3t-n" p="${env:NAME}";'),
        ("${vault:x:y} ${env} ${} $ {env:NAME}", "${vault:x:y} ${env} ${} $ {env:NAME}"),
        (" kept as it is ", " kept as it is "),
        (5, 5),
        (None, None),
    ],
)
def test_variables_are_replaced_once(secrets, value, found):
    """A value is not searched for variables again: it may be foreign text."""
    if isinstance(value, str):
        value = value.replace("DIR", str(secrets))
    environ = {"NAME": "s3cr3t-n", "OTHER": "${env:NAME}"}
    assert resolve(value, environ) == found


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("${file:DIR/s.properties:missing}", "no such key"),
        ("${file:DIR/missing:a}", "No such file"),
        ("${file:DIR:a}", "directory"),
        ("${file:a}", "a path is needed"),
        ("${file:DIR/\0:a}", "the path is not valid"),
        ("${dir:DIR:missing}", "No such file"),
        ("${dir:DIR:..data/password}", "name of a file"),
        ("${dir:DIR:..}", "name of a file"),
        ("${dir:DIR:}", "name of a file"),
        ("${dir:DIR/password:x}", "Not a directory"),
        ("${env:MISSING}", "no such environment variable"),
        ("${env:path:NAME}", "has no path"),
    ],
)
def test_a_variable_without_a_value_is_an_error(secrets, value, words):
    """Kafka takes the text as it is, for example as the password."""
    message = refused(value.replace("DIR", str(secrets)))
    assert message.startswith("x: ${")
    assert words in message


def test_a_file_that_is_not_utf_8_or_no_file_is_an_error(secrets):
    (secrets / "latin").write_bytes(b"a=s3cr3t\xff")
    assert "not UTF-8" in refused(f"${{file:{secrets}/latin:a}}")
    os.mkfifo(secrets / "fifo")
    assert "FIFO" in refused(f"${{dir:{secrets}:fifo}}")


def test_only_allowed_paths_are_read(secrets):
    (secrets / "password2").write_text("s3cr3t")
    allowed = {"file.param.allowed.paths": f"{secrets / 's.properties'}, {secrets / '..data'}"}
    assert resolve(f"${{file:{secrets}/s.properties:a}}", **allowed) == "s3cr3t-a"
    for path in ("password2", "..data/../password2", "s.properties2"):
        assert "allowed.paths" in refused(f"${{file:{secrets}/{path}:a}}", **allowed)
    allowed = {"dir.param.allowed.paths": str(secrets / "..data")}
    assert resolve(f"${{dir:{secrets}/..data:password}}", **allowed) == "s3cr3t-d"
    assert "allowed.paths" in refused(f"${{dir:{secrets}:password}}", **allowed)


@pytest.mark.parametrize("paths", ["relative", "/does/not/exist"])
def test_allowed_paths_are_absolute_and_exist(paths):
    setting = "config.providers.file.param.allowed.paths"
    assert refused("", **{"file.param.allowed.paths": paths}).startswith(setting)


def test_only_allowed_variables_are_read():
    environ = {"KAFKA_A": "1", "A_KAFKA": "2"}
    allowed = {"env.param.allowlist.pattern": "KAFKA_.*"}
    assert resolve("${env:KAFKA_A}", environ, **allowed) == "1"
    assert "allowlist.pattern" in refused("${env:A_KAFKA}", environ, **allowed)
    assert "regular expression" in refused("", **{"env.param.allowlist.pattern": "("})


def test_a_parameter_that_the_provider_does_not_have_is_refused():
    """A misspelled `allowed.paths` would allow all paths."""
    for name in ("file.param.allowed.path", "env.param.allowed.paths"):
        assert name in refused("", **{name: "/"})


def test_other_classes_are_refused_by_name():
    message = refused("", **{"file.class": "com.example.Vault"})
    assert "config.providers.file.class=com.example.Vault" in message
    with pytest.raises(ConfigError, match=r"vault\.class is not set"):
        resolve_variables({"config.providers": "vault"})


def test_without_providers_text_stays_as_it_is():
    values = {"x": "${env:HOME}"}
    assert resolve_variables(values) == values


def test_settings_of_a_broker_have_variables(secrets, monkeypatch):
    monkeypatch.setenv("AIOKQ_TEST_PARTITIONS", "7")
    settings = broker_settings(
        {
            **PROVIDERS,
            "num.partitions": "${env:AIOKQ_TEST_PARTITIONS}",
            "ssl.key.password": f"${{dir:{secrets}:password}}",
        }
    )
    assert settings.num_partitions == 7
    assert settings.ssl_key_password == "s3cr3t-d"
    assert settings.without_effect == ()


def test_settings_of_a_client_have_variables(secrets):
    providers = "".join(f"{name}={value}\n" for name, value in PROVIDERS.items())
    path = secrets / "client.properties"
    path.write_text(
        f"{providers}bootstrap.servers=localhost:1\nclient.id=${{file:{secrets}/s.properties:a}}\n"
    )
    assert ClusterSettings.from_properties(path).client_id == "s3cr3t-a"
    path.write_text(f"{providers}client.id=${{env:AIOKQ_MISSING}}\n")
    with pytest.raises(ConfigError, match=r"client\.properties: client\.id: .*AIOKQ_MISSING"):
        ClusterSettings.from_properties(path)
