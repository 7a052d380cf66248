"""Imports the modules that a broker needs later, one at a time, soon after its start.

The start does not import these modules, so that the broker accepts connections sooner. The modules
are not imported at their first use either: by that time, the process may have no free descriptor to
open their files, and the import of a complete coordinator would block the loop.

Tests: ``tests/unit/broker/test_warm_up.py``, which fails with the names of the modules that
`MODULES` lacks, and ``tests/fault/test_late_imports.py``.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiokq.core.background import BackgroundWork

__all__ = ["MODULES", "OPTIONAL", "warm_up"]

logger = logging.getLogger("aiokq.broker")

_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_NO_DESCRIPTOR_TEXTS: Final = tuple(os.strerror(number) for number in _NO_DESCRIPTOR)

PAUSE: Final = 0.01
"""Seconds between two imports, in which clients are served."""

OPTIONAL: Final = frozenset({"re2"})
"""Modules that an installation may lack."""

FASTPATH: Final = "aiokq.fastpath."
"""Prefix of the modules without which a broker cannot serve."""

MODULES: Final = (
    "aiokq.fastpath.broker",
    "aiokq.wire.interpret",
    "aiokq.wire.source",
    "aiokq.wire.decode_source",
    "aiokq.wire.encode_source",
    "aiokq.wire.compile",
    "aiokq.broker.log.cleaner",
    "aiokq.broker.log.cleaner.log_to_clean",
    "aiokq.broker.log.cleaner.batch_rewriting",
    "aiokq.broker.log.cleaner.cleaned_transactions",
    "aiokq.broker.log.cleaner.log_view",
    "aiokq.records.legacy",
    "aiokq.broker.log.cleaner.offset_map",
    "aiokq.broker.log.cleaner.manager",
    "aiokq.broker.log.cleaned_segment",
    "aiokq.broker.log.cleaner.group_rewriter",
    "aiokq.broker.log.cleaner.statistics",
    "aiokq.broker.log.cleaner.throttle",
    "aiokq.broker.log.cleaner.cleaner",
    "aiokq.core.nearest_name",
    "shutil",
    "lz4.frame",
    "zstandard",
    "cramjam",
    "encodings.utf_16_be",
    "aiokq.broker.log.log_snapshot",
    "aiokq.broker.metadata.log.metadata_writer",
    "aiokq.broker.metadata.earlier",
    "aiokq.broker.metadata.earlier.private_file",
    "aiokq.broker.snapshot",
    "aiokq.broker.metadata.configs.config_changes",
    "aiokq.broker.metadata.controller.broker_configs",
    "aiokq.broker.config.kafka_setting_names",
    "aiokq.broker.config.kafka_settings",
    "aiokq.broker.metadata.configs.loggers",
    "aiokq.broker.metadata.configs.config_sources",
    "aiokq.wire.describe_groups",
    "aiokq.wire.group_records",
    "aiokq.broker.coordinator.group.classic",
    "aiokq.broker.coordinator.group.classic.member",
    "aiokq.broker.coordinator.group.classic.states",
    "aiokq.broker.coordinator.outcome",
    "aiokq.wire.join_group",
    "aiokq.wire.sync_group",
    "aiokq.broker.coordinator.group.classic.rebalance",
    "aiokq.wire.consumer_protocol",
    "aiokq.broker.coordinator.group.classic.roster",
    "aiokq.broker.coordinator.group.group",
    "aiokq.wire.consumer_group_records",
    "aiokq.broker.coordinator.record",
    "aiokq.broker.coordinator.group.record_types",
    "aiokq.broker.coordinator.group.classic.group_state",
    "aiokq.broker.coordinator.group.classic.group",
    "aiokq.broker.coordinator.group.classic.join",
    "aiokq.wire.heartbeat",
    "aiokq.wire.leave_group",
    "aiokq.broker.coordinator.group.classic.member_requests",
    "aiokq.assign",
    "aiokq.assign.server_model",
    "aiokq.assign.uniform_mixed",
    "aiokq.assign.uniform",
    "aiokq.assign.server",
    "aiokq.broker.coordinator.group.consumer",
    "aiokq.broker.coordinator.group.consumer.regex",
    "aiokq.broker.coordinator.timers",
    "aiokq.broker.coordinator.re2_expressions",
    "aiokq.broker.coordinator.group.consumer.context",
    "aiokq.broker.coordinator.group.consumer.member",
    "aiokq.broker.coordinator.group.consumer.image",
    "aiokq.broker.coordinator.group.consumer.records",
    "hashlib",
    "aiokq.broker.coordinator.group.consumer.subscribed_topics",
    "aiokq.broker.coordinator.group.consumer.target_assignment",
    "aiokq.wire.consumer_group_describe",
    "aiokq.broker.coordinator.group.consumer.describe",
    "aiokq.broker.coordinator.group.consumer.removal",
    "aiokq.broker.coordinator.group.consumer.reconciliation",
    "aiokq.wire.consumer_group_heartbeat",
    "aiokq.broker.coordinator.group.consumer.member_change",
    "aiokq.broker.coordinator.group.consumer.heartbeat",
    "aiokq.broker.coordinator.group.consumer.member_timers",
    "aiokq.assign.model",
    "aiokq.assign.protocol",
    "aiokq.broker.coordinator.group.migration",
    "aiokq.broker.coordinator.group.consumer.group",
    "aiokq.broker.coordinator.group.consumer.heartbeat_validation",
    "aiokq.broker.coordinator.shard",
    "aiokq.broker.coordinator.group.committed_offsets",
    "aiokq.wire.offset_commit",
    "aiokq.wire.offset_delete",
    "aiokq.wire.offset_fetch",
    "aiokq.wire.txn_offset_commit",
    "aiokq.broker.coordinator.group.offset_requests",
    "aiokq.wire.delete_groups",
    "aiokq.wire.list_groups",
    "aiokq.broker.coordinator.group.consumer.classic_assignment",
    "aiokq.broker.coordinator.group.consumer.classic_members",
    "aiokq.broker.coordinator.group.migration.downgrade",
    "aiokq.broker.coordinator.group.group_map",
    "aiokq.broker.coordinator.group.migration.upgrade",
    "aiokq.broker.coordinator.group.offset_expiry",
    "aiokq.broker.coordinator.shard_load",
    "aiokq.broker.coordinator.group.shard",
    "aiokq.broker.coordinator.record_batch",
    "aiokq.broker.replica.admission",
    "aiokq.broker.coordinator.shard_log",
    "aiokq.broker.replica.fetch_sessions",
    "aiokq.broker.handlers.group_calls",
    "aiokq.wire.produce",
    "aiokq.broker.handlers.decisions",
    "aiokq.broker.handlers.transaction_admission",
    "aiokq.broker.handlers.h00_produce",
    "aiokq.wire.produced",
    "aiokq.broker.handlers.h00_ordinary",
    "aiokq.wire.fetch",
    "aiokq.broker.handlers.h01_fetch",
    "aiokq.wire.list_offsets",
    "aiokq.broker.handlers.h02_list_offsets",
    "aiokq.wire.metadata",
    "aiokq.broker.handlers.h03_metadata",
    "aiokq.broker.handlers.h08_offset_commit",
    "aiokq.broker.handlers.h09_offset_fetch",
    "aiokq.wire.find_coordinator",
    "aiokq.broker.handlers.h10_find_coordinator",
    "aiokq.broker.handlers.h11_join_group",
    "aiokq.broker.handlers.h12_heartbeat",
    "aiokq.broker.handlers.h13_leave_group",
    "aiokq.broker.handlers.h14_sync_group",
    "aiokq.broker.handlers.h15_describe_groups",
    "aiokq.broker.handlers.h16_list_groups",
    "aiokq.wire.sasl_handshake",
    "aiokq.broker.handlers.h17_sasl_handshake",
    "aiokq.wire.api_versions",
    "aiokq.broker.handlers.h18_api_versions",
    "aiokq.wire.create_topics",
    "aiokq.broker.handlers.h19_create_topics",
    "aiokq.wire.delete_topics",
    "aiokq.broker.handlers.h20_delete_topics",
    "aiokq.wire.delete_records",
    "aiokq.broker.handlers.h21_delete_records",
    "aiokq.wire.init_producer_id",
    "aiokq.broker.handlers.h22_init_producer_id",
    "aiokq.wire.offset_for_leader_epoch",
    "aiokq.broker.handlers.h23_offset_for_leader_epoch",
    "aiokq.wire.add_partitions_to_txn",
    "aiokq.broker.handlers.h24_add_partitions_to_txn",
    "aiokq.wire.add_offsets_to_txn",
    "aiokq.broker.handlers.h25_add_offsets_to_txn",
    "aiokq.wire.end_txn",
    "aiokq.broker.handlers.h26_end_txn",
    "aiokq.wire.write_txn_markers",
    "aiokq.broker.handlers.h27_write_txn_markers",
    "aiokq.broker.coordinator.append_errors",
    "aiokq.broker.handlers.h28_txn_offset_commit",
    "aiokq.wire.describe_acls",
    "aiokq.broker.metadata.controller.acl_changes",
    "aiokq.broker.handlers.acl_calls",
    "aiokq.broker.handlers.h29_describe_acls",
    "aiokq.wire.create_acls",
    "aiokq.broker.handlers.h30_create_acls",
    "aiokq.wire.delete_acls",
    "aiokq.broker.handlers.h31_delete_acls",
    "aiokq.wire.describe_configs",
    "aiokq.broker.handlers.config_permissions",
    "aiokq.broker.handlers.h32_describe_configs",
    "aiokq.wire.alter_configs",
    "aiokq.broker.handlers.h33_alter_configs",
    "aiokq.wire.describe_log_dirs",
    "aiokq.broker.handlers.h35_describe_log_dirs",
    "aiokq.wire.sasl_authenticate",
    "aiokq.broker.handlers.h36_sasl_authenticate",
    "aiokq.broker.handlers.login_requests",
    "aiokq.broker.security",
    "aiokq.broker.security.authentication",
    "aiokq.broker.security.authentication.exchange",
    "aiokq.broker.security.authentication.sasl_login",
    "aiokq.wire.create_partitions",
    "aiokq.broker.handlers.h37_create_partitions",
    "aiokq.broker.handlers.h42_delete_groups",
    "aiokq.wire.elect_leaders",
    "aiokq.broker.handlers.h43_elect_leaders",
    "aiokq.wire.incremental_alter_configs",
    "aiokq.broker.handlers.h44_incremental_alter_configs",
    "aiokq.wire.alter_partition_reassignments",
    "aiokq.broker.handlers.h45_alter_partition_reassignments",
    "aiokq.wire.list_partition_reassignments",
    "aiokq.broker.handlers.h46_list_partition_reassignments",
    "aiokq.broker.handlers.h47_offset_delete",
    "aiokq.wire.describe_client_quotas",
    "aiokq.broker.handlers.h48_describe_client_quotas",
    "aiokq.broker.metadata.controller.quota_changes",
    "aiokq.wire.alter_client_quotas",
    "aiokq.broker.handlers.h49_alter_client_quotas",
    "aiokq.broker.security.quotas",
    "aiokq.broker.security.quotas.precedence",
    "aiokq.broker.security.quotas.client_quotas",
    "aiokq.broker.security.quotas.held_requests",
    "aiokq.broker.security.quotas.shared_quota",
    "aiokq.core.fair_queue",
    "aiokq.broker.security.quotas.caller_quotas",
    "aiokq.broker.handlers.questions",
    "aiokq.wire.describe_user_scram_credentials",
    "aiokq.broker.handlers.h50_describe_user_scram_credentials",
    "aiokq.connection.sasl",
    "hmac",
    "aiokq.connection.sasl.scram_formulas",
    "aiokq.wire.alter_user_scram_credentials",
    "aiokq.broker.metadata.controller.scram_changes",
    "aiokq.broker.handlers.h51_alter_user_scram_credentials",
    "aiokq.wire.describe_quorum",
    "aiokq.broker.handlers.h55_describe_quorum",
    "aiokq.broker.metadata.controller.feature_updates",
    "aiokq.broker.metadata.log.voters",
    "aiokq.wire.update_features",
    "aiokq.broker.handlers.h57_update_features",
    "aiokq.wire.describe_cluster",
    "aiokq.broker.handlers.h60_describe_cluster",
    "aiokq.wire.describe_producers",
    "aiokq.broker.handlers.h61_describe_producers",
    "aiokq.broker.metadata.controller.partition_changes",
    "aiokq.broker.metadata.controller.unregistration",
    "aiokq.wire.unregister_broker",
    "aiokq.broker.handlers.h64_unregister_broker",
    "aiokq.wire.describe_transactions",
    "aiokq.broker.handlers.h65_describe_transactions",
    "aiokq.broker.coordinator.transaction.states",
    "aiokq.broker.coordinator.transaction.transitions",
    "aiokq.wire.list_transactions",
    "aiokq.broker.handlers.h66_list_transactions",
    "aiokq.broker.handlers.h68_consumer_group_heartbeat",
    "aiokq.broker.handlers.h69_consumer_group_describe",
    "aiokq.wire.list_config_resources",
    "aiokq.broker.handlers.h74_list_config_resources",
    "aiokq.wire.describe_topic_partitions",
    "aiokq.broker.handlers.h75_describe_topic_partitions",
    "aiokq.broker.coordinator.transaction.transaction_metadata",
    "aiokq.broker.coordinator.transaction.lost_transactions",
    "aiokq.broker.coordinator.transaction.repairs",
    "aiokq.wire.transaction_records",
    "aiokq.broker.coordinator.transaction.record_types",
    "aiokq.broker.coordinator.transaction.loading",
    "aiokq.broker.coordinator.transaction.deadlines",
    "aiokq.broker.coordinator.transaction.decisions",
    "aiokq.broker.coordinator.transaction.ends",
    "aiokq.broker.coordinator.transaction.initialization",
    "aiokq.broker.coordinator.transaction.shard",
    "aiokq.broker.coordinator.transaction.shard_factory",
    "aiokq.broker.coordinator.transaction.completion",
    "re2",
    "aiokq.broker.coordinator.group.shard_factory",
    "aiokq.broker.coordinator.definition",
    "aiokq.broker.coordinator.shard_context",
)
"""The modules to import.

Each module follows the aiokq modules that it imports, so that every import is short.
"""


async def warm_up(background: BackgroundWork, *, fatal: Callable[[ImportError], None]) -> None:
    """Import `MODULES`, and retry the imports that fail.

    An ImportError is retried only if the process had no free descriptor; otherwise it is logged.

    Args:
        background: notified of the failed imports that are retried.
        fatal: called with the error if a module of the fast path cannot be imported, for example
            because its extensions are of different builds. Without such a module, the broker could
            not serve any Produce request. After the call, no further module is imported.
    """
    task = background.task("import modules")
    waiting: Sequence[str] = MODULES
    while waiting:
        waiting, error = await _import_each(waiting, fatal)
        if error is not None:
            await asyncio.sleep(task.failed(error))
    task.succeeded()


async def _import_each(
    names: Sequence[str], fatal: Callable[[ImportError], None]
) -> tuple[Sequence[str], Exception | None]:
    """Import modules, with a pause after each.

    Args:
        fatal: as in `warm_up`.

    Returns:
        The modules to retry, and the error of the last of them; None if none is retried.
    """
    failed: list[str] = []
    failure: Exception | None = None
    for name in names:
        if name in sys.modules:
            continue
        try:
            if name not in OPTIONAL or importlib.util.find_spec(name) is not None:
                importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - import the other modules
            if isinstance(error, ImportError) and not _lacks_descriptor(error):
                if name.startswith(FASTPATH):
                    logger.error("module cannot be imported: module=%s error=%s", name, error)
                    fatal(error)
                    return (), None
                logger.warning(
                    "module cannot be imported, requests that need it fail: module=%s error=%r",
                    name,
                    error,
                )
            else:
                failed.append(name)
                failure = error
        await asyncio.sleep(PAUSE)
    return failed, failure


def _lacks_descriptor(error: BaseException | None) -> bool:
    """Return whether an import failed because the process had no free descriptor for a file."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NO_DESCRIPTOR:
            return True
        # The error for an extension module has no cause, only the text of the dynamic linker.
        if isinstance(error, ImportError) and str(error).endswith(_NO_DESCRIPTOR_TEXTS):
            return True
        error = error.__cause__ or error.__context__
    return False
