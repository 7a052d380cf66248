"""Decisions about changes of dynamic settings, of one broker or of all brokers.

`alter_broker_configs` returns the new settings and the metadata records to write. The functions
depend only on their arguments and have no side effects.

Source: Kafka ``ConfigAdminManager.scala``, ``ConfigurationControlManager.java``; KIP-226, KIP-966.
Tests: ``tests/unit/broker/metadata/controller/test_broker_configs.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from aiokq.broker.config.dynamic_settings import (
    STORE_SETTINGS,
    check_effective,
    effective_settings,
    is_dynamic,
    is_store,
    parse_dynamic,
)
from aiokq.broker.metadata.controller.decision import ConfigChange, Decision
from aiokq.broker.metadata.controller.eligible_replicas import clear_elr_records, elr_is_on
from aiokq.broker.metadata.controller.registration import MIN_INSYNC_REPLICAS
from aiokq.broker.metadata.image.records import BROKER_CONFIG, config_records
from aiokq.core.errors import ConfigError, InvalidConfiguration, InvalidRequest
from aiokq.core.limits import INT16_MAX

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.metadata.image.image import MetadataImage

__all__ = ["alter_broker_configs", "node_settings"]


def alter_broker_configs(
    image: MetadataImage,
    name: str,
    change: ConfigChange,
    *,
    named: Collection[str],
    static: BrokerSettings,
    node_id: int,
    validate_only: bool = False,
) -> Decision[Mapping[str, str]]:
    """Return the dynamic settings of one or all brokers after a change, and the change's records.

    Values that do not change are not checked: Apache Kafka may have stored settings that this
    broker does not use, and a request may keep or remove them.

    Args:
        name: the broker's id, or "" for the settings of all brokers.
        named: the settings that the request names, including those that it removes.
        static: the settings with which this node was started.
        node_id: id of this node; the caller has checked that `name` is this id or "".

    Raises:
        InvalidRequest: a setting is unknown, has an invalid value, cannot change while a broker
            runs, or cannot change for all brokers.
        InvalidConfiguration: a value is too long, or eligible leader replicas are on and do not
            allow the change of ``min.insync.replicas``.
        BrokerError: raised by ``change``.
    """
    present = image.configs.get((BROKER_CONFIG, name), {})
    wanted = {key: value.strip() for key, value in change(present).items()}
    changed = {key: value for key, value in wanted.items() if present.get(key) != value}
    _check_names(changed, of_one_broker=bool(name))
    for key, value in changed.items():
        if len(value.encode()) > INT16_MAX:
            raise InvalidConfiguration(
                f"The configuration value of {key} cannot be added because it exceeds the maximum "
                f"value size of {INT16_MAX} bytes."
            )
        try:
            parse_dynamic(key, value)
        except ConfigError as error:
            raise InvalidRequest(
                f"Invalid value for configuration {key}: {error.message}"
            ) from None
    cluster, own = image.cluster_configs(), image.own_configs(node_id)
    before = effective_settings(static, cluster, own).settings
    after = effective_settings(static, *((cluster, wanted) if name else (wanted, own))).settings
    try:
        check_effective(before, after)
    except ConfigError as error:
        raise InvalidRequest(f"Invalid dynamic configuration: {error.message}") from None
    if elr_is_on(image):
        _check_min_insync_replicas(name, present, wanted, named)
    if validate_only:
        return Decision(wanted, ())
    records = list(config_records(BROKER_CONFIG, name, present, wanted))
    return Decision(wanted, [*records, *clear_elr_records(image, records)])


def node_settings(image: MetadataImage, static: BrokerSettings, node_id: int) -> BrokerSettings:
    """Return the settings in effect on a node: dynamic settings override static ones."""
    cluster, own = image.cluster_configs(), image.own_configs(node_id)
    return effective_settings(static, cluster, own).settings


def _check_names(names: Collection[str], *, of_one_broker: bool) -> None:
    without_prefix = sorted(STORE_SETTINGS.intersection(names))
    refused = sorted(name for name in names if not is_dynamic(name))
    if refused == without_prefix:
        if without_prefix:
            raise InvalidRequest(
                "These security configs can be dynamically updated only per-listener using the "
                f"listener prefix: {_set_text(without_prefix)}"
            )
        of_all = [] if of_one_broker else sorted(filter(is_store, names))
        if of_all:
            raise InvalidRequest(
                "Cannot update these configs at default cluster level, broker id must be "
                f"specified: {_set_text(of_all)}"
            )
        return
    from aiokq.broker.config.kafka_settings import is_of_kafka  # slow: the module has a large table

    unknown = [name for name in refused if not is_of_kafka(name)]
    if unknown:
        # Kafka accepts unknown settings, because a plug-in may read them.
        raise InvalidRequest(
            f"Unknown Dynamic Configuration: {_set_text(unknown)}: this broker has no plug-ins "
            "that could read settings which Apache Kafka does not know; check the name"
        )
    raise InvalidRequest(
        f"Cannot update these configs dynamically: {_set_text(refused)}: this broker does not use "
        "them, or reads them at its start; set them by --set name=value or in the --config file, "
        "and restart the broker"
    )


def _set_text(names: Iterable[str]) -> str:
    return f"Set({', '.join(names)})"


def _check_min_insync_replicas(
    name: str, present: Mapping[str, str], wanted: Mapping[str, str], named: Collection[str]
) -> None:
    """Check that all brokers have the same ``min.insync.replicas`` after a change."""
    gone = MIN_INSYNC_REPLICAS not in wanted
    if name:
        if MIN_INSYNC_REPLICAS in named or (gone and MIN_INSYNC_REPLICAS in present):
            raise InvalidConfiguration(
                f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
            )
    elif gone and (MIN_INSYNC_REPLICAS in named or MIN_INSYNC_REPLICAS in present):
        raise InvalidConfiguration(
            f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        )
