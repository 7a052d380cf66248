"""Metadata changes without a node: they are recorded in a log, and a test's publisher gets them."""

from __future__ import annotations

import random

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.log.meta_properties import random_id
from aiokq.broker.metadata.changes import MetadataChanges
from aiokq.broker.metadata.configs.group_configs import GroupConfigs
from aiokq.broker.metadata.controller.controller import Controller
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.image.metadata_delta import MetadataDelta
from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog
from aiokq.core.errors import KafkaStorage
from aiokq.core.offload import InlineOffload


class PublishedGroups:
    """Publishes group configs, and keeps what it published."""

    def __init__(self, settings=None) -> None:
        self.group_configs = GroupConfigs(settings or broker_settings({}))
        self.published: list[MetadataDelta] = []

    def load(self, image: MetadataImage) -> None:
        for group_id, configs in image.group_configs().items():
            self.group_configs.configure(group_id, configs)

    async def publish(self, delta: MetadataDelta) -> KafkaStorage | None:
        self.published.append(delta)
        for group_id, configs in delta.groups.items():
            self.group_configs.configure(group_id, configs)
        return None


def changes_on(log: ClusterMetadataLog, publisher=None, settings=None) -> MetadataChanges:
    """Return changes that are recorded in `log`."""
    settings = settings or broker_settings({})
    rng = random.Random(1)
    controller = Controller(settings, log.node_id, lambda: random_id(rng))
    return MetadataChanges(controller, log, publisher or PublishedGroups(), InlineOffload())
