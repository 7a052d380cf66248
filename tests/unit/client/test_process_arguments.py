"""The TypedDict of `aiokq.process` has the arguments of `Cluster.process`."""

from __future__ import annotations

import inspect
from typing import ForwardRef

from aiokq.client.cluster import Cluster
from aiokq.client.process_arguments import ProcessArguments


def test_the_typed_dict_has_each_keyword_argument_with_its_type() -> None:
    """An argument that is missing there would be an error of the type checker at the caller."""
    keywords = {
        name: parameter
        for name, parameter in inspect.signature(Cluster.process).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    given = {
        name: kind.__forward_arg__
        for name, kind in ProcessArguments.__annotations__.items()
        if isinstance(kind, ForwardRef)
    }
    expected = {
        name: f"Required[{parameter.annotation}]"
        if parameter.default is inspect.Parameter.empty
        else parameter.annotation
        for name, parameter in keywords.items()
    }
    assert given == expected
