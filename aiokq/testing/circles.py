"""Finds circles in a directed graph: strongly connected components, by Tarjan's algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

__all__ = ["circles"]


def circles(edges: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """Yield the nodes of each strongly connected component that has at least two nodes.

    The function is not recursive, because a chain of transactions may exceed Python's stack.

    Args:
        edges: for each node, the nodes to which its edges lead.
    """
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in edges:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        path = [(root, iter(edges.get(root, ())))]
        while path:
            name, following = path[-1]
            step = next(following, None)
            if step is None:
                path.pop()
                if path:
                    above = path[-1][0]
                    low[above] = min(low[above], low[name])
                if low[name] == number[name]:
                    component: list[str] = []
                    while not component or component[-1] != name:
                        component.append(stack.pop())
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        yield component
            elif step not in number:
                number[step] = low[step] = len(number)
                stack.append(step)
                on_stack.add(step)
                path.append((step, iter(edges.get(step, ()))))
            elif step in on_stack:
                low[name] = min(low[name], number[step])
