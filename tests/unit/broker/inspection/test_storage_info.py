"""What `aiokq storage info` reports about log directories: the words of Kafka's tool."""

from __future__ import annotations

from aiokq.broker.inspection.storage_info import storage_info
from tests.sim.harness.files import MemoryFiles

META = "node.id={node}\ndirectory.id={directory}\nversion=1\ncluster.id={cluster}\n"


def disk(**directories: str) -> MemoryFiles:
    files = MemoryFiles()
    for name, text in directories.items():
        files.mkdirs(f"/{name}")
        if text:
            files.write_atomic(f"/{name}/meta.properties", text.encode())
    return files


ONE, TWO = "AAAAAAAAQACAAAAAAAAAAQ", "AAAAAAAAQACAAAAAAAAAAg"


def meta(node: int = 5, cluster: str = "c", directory: str = ONE) -> str:
    return META.format(node=node, cluster=cluster, directory=directory)


def test_sound_directories() -> None:
    """The ids are those of the first directory by name, each path is named once."""
    files = disk(b=meta(directory=TWO), a=meta(directory=ONE))
    found = storage_info(files, ["/b", "/a", "/b"])
    assert found.found == ("/a", "/b")
    assert list(found.metadata.items()) == [
        ("cluster.id", "c"),
        ("directory.id", ONE),
        ("node.id", "5"),
        ("version", "1"),
    ]
    assert found.problems == ()


def test_every_problem_has_kafkas_words() -> None:
    """Scripts that read the output of Kafka's tool find the same sentences."""
    files = disk(a=meta(), b=meta(cluster="other"), c=meta(node=6), d="", e="version=7\n")
    files.write_atomic("/f", b"")
    found = storage_info(files, [f"/{name}" for name in "abcdefg"])
    assert found.found == ("/a", "/b", "/c", "/d", "/e")
    assert found.problems == (
        "Mismatched cluster IDs between storage directories.",
        "Mismatched node IDs between storage directories.",
        "/d is not formatted.",
        "Error loading /e/meta.properties: /e/meta.properties has version 7, which this broker "
        "does not support",
        "/f is not a directory",
        "/g does not exist",
    )


def test_directories_of_a_cluster_with_zookeeper() -> None:
    """Kafka 4 and aiokq do not start with them."""
    files = disk(a="broker.id=5\ncluster.id=c\n")
    assert "formatted for legacy mode" in storage_info(files, ["/a"]).problems[0]
