"""Objects bound to a loop and a process cannot be sent to another process."""

from __future__ import annotations

import copy
import pickle

import pytest

import aiokq

CLIENTS = [
    aiokq.Cluster("localhost:9092"),
    aiokq.Producer("localhost:9092"),
    aiokq.Consumer("orders", bootstrap_servers="localhost:9092"),
    aiokq.Admin("localhost:9092"),
]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: type(client).__name__)
def test_clients_refuse_to_be_pickled_and_say_what_to_do(client: object):
    """A closure sent to Spark would fail with "cannot pickle '_thread.lock'" instead."""
    with pytest.raises(aiokq.WrongLoop, match=r"Send its settings.*worker_client\(settings\)"):
        pickle.dumps({"client": client})
    with pytest.raises(aiokq.WrongLoop, match=f"a {type(client).__name__} cannot be"):
        copy.copy(client)


def test_settings_can_be_sent_in_their_place():
    """The error advises to send the settings, so pickling the settings must work."""
    settings = aiokq.Cluster("localhost:9092", client_id="shop").settings
    again = pickle.loads(pickle.dumps(settings))
    assert again.client_id == "shop"
    assert again.bootstrap_servers == settings.bootstrap_servers
    assert again.explicit == settings.explicit
