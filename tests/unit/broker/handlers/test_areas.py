"""aiokq.broker.handlers.areas: the parts of a node that handlers use."""

from __future__ import annotations

import importlib
import inspect
import typing

import pytest

from aiokq.broker.handlers import APIS, areas
from aiokq.broker.handlers.binding import Areas, bind
from tests.unit.broker.harness import Broker

PROTOCOLS = [
    value
    for value in vars(areas).values()
    if inspect.isclass(value)
    and getattr(value, "_is_protocol", False)
    and value.__module__ == areas.__name__
]


def members(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.__name__)
def test_no_area_has_more_than_eight_members(protocol):
    """A larger area would amount to the whole node under another name."""
    assert 0 < len(members(protocol)) <= 8


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_signature_of_a_handler_names_its_areas(api):
    """Areas are bound by name, so names and types must agree; request and call follow them."""
    handle = importlib.import_module(f"aiokq.broker.handlers.{api.module}").handle
    parameters = list(inspect.signature(handle).parameters.values())
    assert [parameter.name for parameter in parameters[-2:]] == ["request", "call"]
    for parameter in parameters[:-2]:
        assert parameter.name in Areas._fields
        assert parameter.annotation == Areas.__annotations__[parameter.name]


async def test_an_open_node_has_every_member_of_every_area():
    """The parts of the node satisfy the protocols; mypy compares the types."""
    async with Broker() as broker:
        node_areas = broker.node.dispatcher._areas
        for name, annotation in typing.get_type_hints(
            Areas, vars(areas) | {"Turn": object}
        ).items():
            value = getattr(node_areas, name)
            if annotation in PROTOCOLS:
                for member in members(annotation):
                    assert hasattr(value, member), f"{name}.{member}"


async def test_binding_gives_a_handler_its_areas_in_order():
    """Their order in ``Areas`` does not matter."""
    node_areas = Areas(*range(len(Areas._fields)))

    async def handle(host, topics, request, call):
        return host, topics, request, call

    found = await bind(handle, node_areas)("request", "call")
    assert found == (node_areas.host, node_areas.topics, "request", "call")

    async def uses_nothing(request, call):
        return request, call

    assert await bind(uses_nothing, node_areas)("request", "call") == ("request", "call")
