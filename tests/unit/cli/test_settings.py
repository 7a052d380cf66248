"""Sources of a command's settings, and their precedence."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from aiokq.admin.settings import AdminSettings
from aiokq.cli.settings import client_settings, own_settings
from aiokq.client.cluster import Cluster
from aiokq.cluster.settings import ClusterSettings
from aiokq.consumer.settings import ConsumerSettings
from aiokq.core.errors import ConfigError, ConfigWarning
from aiokq.producer.settings import ProducerSettings
from tests.unit.cli.harness import CommandLine


def properties(directory: Path, text: str) -> Path:
    path = directory / "client.properties"
    path.write_text(text)
    return path


def test_options_win_over_the_file_and_the_file_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The source nearest to the command has precedence."""
    monkeypatch.setenv("KAFKA_LINGER_MS", "1")
    monkeypatch.setenv("KAFKA_BATCH_SIZE", "1")
    monkeypatch.setenv("KAFKA_CLIENT_ID", "env")
    path = properties(tmp_path, "batch.size=2\nclient.id=file\nbootstrap.servers=a:1\n")
    settings = client_settings(ProducerSettings, "b:2", path, client_id="option")
    assert (settings.linger_ms, settings.batch_size, settings.client_id) == (1, 2, "option")
    assert settings.bootstrap_servers == ("b:2",)


def test_one_file_serves_all_commands(tmp_path: Path):
    """A producer's settings in it must not stop `topics list`."""
    path = properties(tmp_path, "bootstrap.servers=a:1\nlinger.ms=1\nfetch.max.bytes=1000\n")
    assert client_settings(AdminSettings, None, path).bootstrap_servers == ("a:1",)
    assert client_settings(ConsumerSettings, None, path).fetch_max_bytes == 1000


def test_an_unknown_name_in_the_file_is_refused_with_the_nearest_one(tmp_path: Path):
    """An ignored typo would leave the setting without effect."""
    path = properties(tmp_path, "bootstrap.servers=a:1\nclient.ids=x\n")
    with pytest.raises(ConfigError, match=r"client\.properties.*client\.ids.*client\.id\?"):
        client_settings(AdminSettings, None, path)


def test_a_name_that_only_java_has_warns(tmp_path: Path):
    """Files are shared with Java tools."""
    path = properties(tmp_path, "bootstrap.servers=a:1\npartitioner.class=x\n")
    with pytest.warns(ConfigWarning, match=r"partitioner\.class"):
        client_settings(AdminSettings, None, path)


def test_a_warning_is_one_line(alone: CommandLine, tmp_path: Path):
    """Python's own format shows a line of aiokq's source."""
    path = properties(tmp_path, "partitioner.class=x\nclient.ids=x\n")
    warning, error = alone("topics", "list", "--config", str(path)).err.splitlines()
    assert warning.startswith("aiokq: warning: ")
    assert error.startswith("aiokq: ")


@pytest.mark.parametrize("name", ["missing", "directory", "latin1"])
def test_a_file_that_cannot_be_read_is_one_line(alone: CommandLine, tmp_path: Path, name: str):
    """The line contains the path."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "latin1").write_bytes(b"client.id=\xe9")
    done = alone("topics", "list", "--config", str(tmp_path / name))
    assert done.code == 1
    assert name in done.complaint


def test_a_refused_value_is_one_line(
    alone: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """pydantic's own report has four lines and an address of its documentation."""
    monkeypatch.setenv("KAFKA_REQUEST_TIMEOUT_MS", "soon")
    done = alone("topics", "list")
    assert done.code == 1
    assert "request_timeout_ms" in done.complaint


def test_an_empty_list_of_servers_is_wrong_usage():
    """`-b ""` comes from an unset variable in a script."""
    with pytest.raises(typer.BadParameter):
        client_settings(AdminSettings, "", None)


def test_own_settings_leave_out_what_the_cluster_has():
    """`cluster.consumer(settings=...)` refuses settings of the cluster."""
    settings = client_settings(ConsumerSettings, "a:1", None, isolation_level="read_committed")
    assert own_settings(settings).explicit == {"isolation_level"}


def test_own_settings_may_be_valid_with_the_clusters_only(tmp_path: Path):
    """Regression: `produce` refused short delivery.timeout.ms and request.timeout.ms."""
    path = properties(tmp_path, "delivery.timeout.ms=5000\nrequest.timeout.ms=1000\n")
    own = own_settings(client_settings(ProducerSettings, "a:1", path))
    assert own.explicit == {"delivery_timeout_ms"}
    shared = client_settings(ClusterSettings, "a:1", path)
    producer = Cluster(settings=shared).producer(settings=own)
    assert producer.settings.delivery_timeout_ms == 5000
