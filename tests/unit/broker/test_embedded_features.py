"""EmbeddedCluster(features=...): the levels of features of a new cluster."""

from __future__ import annotations

import pytest

import aiokq
from aiokq.broker.metadata.image.features import new_levels


def levels(kafka):
    return dict(kafka.node.storage.publisher.features)


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_a_new_cluster_has_the_given_level(level, tmp_path):
    """A level is kept in the directory; other features get their default."""
    features = {"transaction.version": level}
    async with aiokq.EmbeddedCluster(data_dir=tmp_path, features=features) as kafka:
        found = levels(kafka)
    assert {"transaction.version": 0, **found} == {**new_levels(), **features}
    async with aiokq.EmbeddedCluster(data_dir=tmp_path) as kafka:
        assert levels(kafka) == found
    other = {"transaction.version": 2 - level}
    async with aiokq.EmbeddedCluster(data_dir=tmp_path, features=other) as kafka:
        assert levels(kafka) == found


async def test_reset_keeps_the_level():
    """A fixture may share a cluster between tests."""
    async with aiokq.EmbeddedCluster(features={"transaction.version": 1}) as kafka:
        await kafka.reset()
        assert levels(kafka)["transaction.version"] == 1


async def test_an_older_metadata_version_has_its_own_defaults():
    """Transactions of version 2 are the default from 4.0 on."""
    async with aiokq.EmbeddedCluster(features={"metadata.version": 20}) as kafka:
        assert levels(kafka) == new_levels(20)


@pytest.mark.parametrize(
    ("features", "text"),
    [
        ({"transaction.version": 3}, "transaction.version has levels from 0 to 2, not 3"),
        ({"transaction.version": -1}, "transaction.version has levels from 0 to 2, not -1"),
        ({"transaction.version": True}, "not True"),
        ({"transaction.version": "1"}, "not '1'"),
        ({"transaction.versoin": 1}, "did you mean transaction.version"),
        ({"kraft.version": 1}, "unknown feature 'kraft.version'"),
        ({"metadata.version": 2}, "metadata.version has levels from"),
        ([("transaction.version", 1)], "features must be a mapping"),
        (1, "features must be a mapping"),
    ],
)
def test_other_levels_are_refused_when_the_cluster_is_created(features, text):
    """As are unknown features; the text names what is possible."""
    with pytest.raises(aiokq.ConfigError) as caught:
        aiokq.EmbeddedCluster(features=features)
    assert text in str(caught.value)
