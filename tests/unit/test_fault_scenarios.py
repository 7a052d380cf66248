"""The fault scenarios of logs, disks, transactions and clients, by number, and the tests of each.

Each scenario and its expected outcome are described here in one line; the tests have the details.
This module only checks that each named test exists.

Source: the failure modes of Jepsen's and Kafka's own system tests.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]

TRANSACTIONS: Final = "unit/broker/coordinator/transaction"

SCENARIOS: Final[dict[tuple[int, str, str], tuple[str, ...]]] = {
    (9, "reply lost after an idempotent append", "duplicate, acknowledged with its offset"): (
        "unit/broker/handlers/test_ordinary_produce.py"
        "::test_duplicates_and_gaps_of_idempotent_producers",
        "sim/test_producer_faults.py::test_after_a_lost_response_the_record_exists_once",
        f"{TRANSACTIONS}/test_named_points.py::test_a_lost_reply_at_each_request_changes_nothing",
    ),
    (10, "the same without idempotence", "there twice, as documented"): (
        f"{TRANSACTIONS}/test_delays_and_waits.py"
        "::test_without_idempotence_a_repeated_batch_is_there_twice",
    ),
    (11, "five batches in flight, the first fails", "order kept"): (
        "sim/test_producer_faults.py"
        "::test_five_batches_in_flight_keep_their_order_if_the_first_fails",
    ),
    (12, "the sixth-oldest batch again", "45, not appended"): (
        "unit/broker/log/test_producer_state.py"
        "::test_duplicates_are_the_last_five_of_the_same_epoch",
    ),
    (13, "broker restart between retries", "sequences are known from snapshot and log"): (
        "fault/test_log_faults.py::test_a_restart_between_records_loses_and_doubles_none",
        "fault/test_broker_process.py::test_a_retry_over_a_kill_is_still_recognised",
        "fault/test_log_kills.py::test_each_acknowledged_record_is_there_once_and_in_order",
        "interop/test_java_on_broker.py"
        "::test_the_verifiable_producer_survives_three_kills_of_the_broker",
    ),
    (14, "crash in the middle of an append", "cut after the last whole batch"): (
        "fault/test_log_faults.py::test_a_torn_tail_is_cut",
        "fault/test_broker_process.py::test_a_torn_tail_is_cut_off_and_the_log_goes_on",
        "property/test_log_partition.py::LogMachine",
    ),
    (15, "flipped bit in an old segment", "the reader sees it, recovery cuts there"): (
        "fault/test_log_faults.py"
        "::test_a_flipped_bit_is_found_by_the_reader_and_removed_by_recovery",
    ),
    (16, "garbage behind the log", "removed"): (
        "fault/test_log_faults.py::test_garbage_behind_the_log_is_removed",
        "property/test_log_partition.py::LogMachine",
    ),
    (17, "indexes and snapshots deleted", "made again, same reads"): (
        "fault/test_log_faults.py::test_all_but_the_log_is_made_again",
        "property/test_log_partition.py::LogMachine",
    ),
    (18, "crash while the cleaner swaps", "the old segments or the new, never both"): (
        "unit/broker/log/test_cleaner_crash.py"
        "::test_a_crash_after_each_file_operation_leaves_the_old_or_the_new_set",
        "unit/broker/log/test_temporary_files.py"
        "::test_a_crash_during_a_swap_leaves_the_old_segments_or_the_new",
        "property/test_log_compaction.py::CompactionMachine",
        "property/test_log_disks.py::DiskMachine",
    ),
    (19, "ENOSPC, EIO", "56, the directory offline, nothing acknowledged is lost"): (
        "fault/test_disk_faults.py"
        "::test_one_disk_that_fails_takes_its_partitions_offline_and_nothing_acknowledged_is_lost",
        "fault/test_disk_faults.py"
        "::test_when_the_last_disk_fails_the_answer_is_56_and_the_exit_code_1",
        "fault/test_disk_faults.py"
        "::test_a_failed_sync_is_not_acknowledged_and_takes_the_disk_offline",
        "fault/test_disk_faults.py::test_a_disk_that_is_really_full_loses_nothing_acknowledged",
        "property/test_log_disks.py::DiskMachine",
    ),
    (20, "slow fsync", "latency for who waits for it, nothing else"): (
        "fault/test_disk_faults.py"
        "::test_a_slow_sync_costs_those_who_wait_for_it_latency_and_nobody_else_anything",
        "property/test_log_disks.py::DiskMachine",
    ),
    (29, "zombie of a transactional producer", "90, 47 for old versions"): (
        f"{TRANSACTIONS}/test_requests.py"
        "::test_a_new_producer_fences_the_old_one_and_aborts_its_transaction",
    ),
    (30, "coordinator dies between the decision and the markers", "completed by the next"): (
        f"{TRANSACTIONS}/test_named_points.py"
        "::test_a_kill_at_each_point_leaves_a_whole_transaction",
        f"{TRANSACTIONS}/test_time_and_restart.py"
        "::test_a_prepared_transaction_is_completed_after_a_restart",
    ),
    (31, "transaction timeout", "aborted, readers go on"): (
        f"{TRANSACTIONS}/test_time_and_restart.py::test_a_transaction_is_aborted_at_its_timeout",
    ),
    (32, "EndTxn of an earlier transaction, delayed", "refused by version 2"): (
        f"{TRANSACTIONS}/test_delays_and_waits.py"
        "::test_a_delayed_end_of_version_2_ends_no_later_transaction",
        f"{TRANSACTIONS}/test_delays_and_waits.py"
        "::test_a_delayed_end_of_version_1_ends_a_later_transaction",
        "sim/test_transactions_versions.py::test_a_late_endtxn_cannot_end_the_next_transaction",
    ),
    (33, "aborted records", "hidden from read_committed, visible to read_uncommitted"): (
        f"{TRANSACTIONS}/test_requests.py"
        "::test_committed_records_are_read_and_aborted_ones_are_named",
    ),
    (34, "offsets of a transaction that aborts", "unchanged; 88 meanwhile if asked"): (
        "unit/broker/handlers/test_group_transactions.py"
        "::test_offsets_count_when_the_transaction_commits",
    ),
    (35, "topic deleted and made again under a reader", "by its reset policy in the new one"): (
        "sim/test_reset.py::test_a_reader_starts_in_the_recreated_topic_by_its_reset_policy",
        "sim/test_reset.py"
        "::test_a_topic_recreated_by_another_client_is_not_read_from_the_old_position",
        "sim/test_reset.py::test_producer_and_consumer_survive_resets",
    ),
    (36, "retention passes a reader", "offset out of range: by its policy, or an error"): (
        "sim/test_retention.py::test_a_reader_of_deleted_records_follows_its_reset_policy",
        "sim/test_retention.py::test_the_out_of_range_error_names_the_available_offsets",
    ),
    (37, "reader slower than delete.retention.ms", "final values, in order"): (
        "unit/broker/log/test_cleaner_run.py"
        "::test_a_reader_slower_than_the_delete_retention_sees_final_values_in_order",
        "fault/test_compaction.py::test_keyed_records_are_compacted_under_readers_and_a_writer",
    ),
    (38, "slow, half-open, byte-at-a-time, oversize", "bounded memory, closed"): (
        "fault/test_hostile_connections.py"
        "::test_slow_and_half_open_clients_and_wrong_sizes_are_disconnected",
        "fault/test_broker_process.py::test_what_is_not_kafka_is_disconnected",
        "fault/test_broker_process.py"
        "::test_counts_that_promise_more_than_the_frame_allocate_nothing",
        "fault/test_broker_process.py::test_half_sent_frames_hold_no_memory_of_their_promised_size",
        "fault/test_broker_process.py::test_a_client_that_sends_byte_by_byte_is_served",
        "fault/test_broker_process.py"
        "::test_a_client_that_reads_nothing_does_not_fill_the_brokers_memory",
        "fault/test_server_faults.py::test_a_reader_that_stops_is_given_up_and_leaves_nothing_open",
        "fault/test_server_faults.py::test_half_a_request_is_given_up",
        "unit/connection/test_server.py::test_the_idle_timeout_limits_the_time_to_receive_a_request",
        "unit/connection/test_server.py::test_idle_connections_are_closed_and_busy_ones_are_not",
        "fault/test_server_faults.py::test_a_client_behind_a_bad_line_gets_its_bytes",
    ),
    (39, "a user and client over their quota", "told and muted, others unaffected"): (
        "sim/test_quotas.py::test_a_user_and_client_over_its_quota_is_muted_and_others_are_not",
        "sim/test_gate.py::test_a_throttled_client_gets_its_response_and_its_next_request_waits",
        "unit/broker/test_user_quotas.py::test_the_eight_levels_hold_for_users_that_have_logged_in",
        "interop/test_quotas_of_users.py::test_a_client_is_throttled_as_its_user_and_reports_it",
    ),
    (40, "an error N times, then success; an old version", "repeated; the older protocol"): (
        "interop/test_mock_cluster_faults.py::test_a_produce_error_that_passes_is_retried",
        "interop/test_mock_cluster_faults.py"
        "::test_a_fetch_error_that_passes_loses_and_doubles_nothing",
        "interop/test_transactions_mock_cluster.py::test_requests_are_repeated",
        "sim/test_transactions_versions.py::test_versions_of_requests_follow_the_finalized_level",
    ),
    (41, "a clock that jumps an hour", "monotonic timeouts; times refused by their limits"): (
        f"{TRANSACTIONS}/test_delays_and_waits.py"
        "::test_a_clock_that_jumps_changes_no_timeout_of_a_transaction",
        "unit/broker/coordinator/test_runtime.py::test_a_timer_writes_by_the_loops_clock",
        "unit/connection/test_server.py::test_idle_and_throttle_times_use_only_the_loops_clock",
        "unit/broker/log/test_validation.py::test_times_too_far_ahead_are_named_one_by_one",
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario[0])
def test_each_scenario_has_its_tests(scenario: tuple[int, str, str]) -> None:
    """A renamed or deleted test would leave its scenario unproven."""
    for test in SCENARIOS[scenario]:
        path, name = test.split("::")
        tree = ast.parse((ROOT / "tests" / path).read_text())
        assert name in {getattr(node, "name", None) for node in tree.body}, test
