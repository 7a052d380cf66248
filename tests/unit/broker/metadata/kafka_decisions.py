"""What Kafka's controller decided about many requests, from `golden/metadata/decisions.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.wire.cluster_metadata_records import ConfigRecord, FeatureLevelRecord
from aiokq.wire.struct import Message

DECISIONS: Mapping[str, Any] = json.loads(
    (Path(__file__).parents[3] / "golden" / "metadata" / "decisions.json").read_text()
)
NODE = 3
"""The controller that decided."""


def image_of(
    features: Mapping[str, int] | None = None, configs: Mapping[str, str] | None = None
) -> MetadataImage:
    """Return an image with levels of features, and settings by `resource:name`."""
    image = MetadataImage()
    for name, level in (features or {}).items():
        image.replay(FeatureLevelRecord(name=name, feature_level=level))
    for key, value in (configs or {}).items():
        resource, _, name = key.partition(":")
        image.replay(ConfigRecord(resource_type=4, resource_name=resource, name=name, value=value))
    return image


def java_text(records: Iterable[Message]) -> list[str]:
    """Return the `toString` of Kafka's class for each record."""
    return [_java_text(record) for record in records]


def _java_text(record: Message) -> str:
    fields = ", ".join(
        f"{_camel(field.name)}={_java_value(getattr(record, field.name))}"
        for field in type(record).__fields__
    )
    return f"{type(record).__name__}({fields})"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _java_value(value: object) -> str:
    if value is None:
        return "null"
    return f"'{value}'" if isinstance(value, str) else str(value)
