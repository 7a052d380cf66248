"""JoinGroup (11), versions 0-9: join a group by the classic protocol.

In a classic group, the response to a join that causes a rebalance is sent when the next generation
begins. In a consumer group, a join may also resolve the regular expressions of other members.
These expressions then match only topics that the sender may describe. KIP-345, KIP-394.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
INCONSISTENT_GROUP_PROTOCOL (also for more than `MOST_PROTOCOLS` protocols), INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, INVALID_SESSION_TIMEOUT, GROUP_AUTHORIZATION_FAILED, MEMBER_ID_REQUIRED (join
again with the member id in the response), GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID,
FENCED_MEMBER_EPOCH.

v1  rebalance timeout      v5  static members     v8  reason
v2  throttle time          v6  flexible           v9  skip_assignment
v4  member id required     v7  protocol type
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.handlers.group_calls import check_group_id, subscriber_of
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, InconsistentGroupProtocol, InvalidSessionTimeout
from aiokq.wire.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Configs, Groups
    from aiokq.broker.handlers.call import Call

FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_WITH_NULL_PROTOCOL: Final = 7

MOST_PROTOCOLS: Final = 1000
"""Maximum number of protocols of a member; a client has a few. Kafka has no limit.

All protocols of a group are compared at each rebalance, while no other task runs.
"""


async def handle(
    groups: Groups, configs: Configs, request: JoinGroupRequest, call: Call
) -> JoinGroupResponse:
    """Add the member to the group; return the generation and, to the leader, the members."""
    if call.version < FIRST_WITH_REBALANCE_TIMEOUT:
        request.rebalance_timeout_ms = request.session_timeout_ms
    caller = subscriber_of(call)
    try:
        call.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
        check_group_id(request.group_id)
        _check_session_timeout(configs, request.session_timeout_ms)
        if len(request.protocols) > MOST_PROTOCOLS:
            raise InconsistentGroupProtocol(f"a member has at most {MOST_PROTOCOLS} protocols")
        response = await groups.write(
            request.group_id, lambda shard, instant: shard.join(request, caller, instant)
        )
    except BrokerError as error:
        response = JoinGroupResponse(error_code=error.code, member_id=request.member_id)
    if call.version < FIRST_WITH_NULL_PROTOCOL:
        response.protocol_name = response.protocol_name or ""
    else:
        response.protocol_name = response.protocol_name or None
    return response


def _check_session_timeout(configs: Configs, timeout_ms: int) -> None:
    settings = configs.settings
    shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if not shortest <= timeout_ms <= longest:
        raise InvalidSessionTimeout(
            f"the session timeout must be between {shortest} and {longest} ms on this broker, "
            f"not {timeout_ms}"
        )
