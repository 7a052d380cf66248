"""`EmbeddedCluster`: a broker in this process, on the caller's loop or on a thread of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Never, TypeVar

from aiokq import fastpath
from aiokq.broker.embedded_arguments import (
    OPTIONAL_PATH,
    authorizer_of,
    callable_argument,
    checked_acls,
    checked_users,
    configs_text,
    name_text,
    new_features,
    node_arguments,
    path_text,
    start_error,
    unknown_argument,
)
from aiokq.broker.loop_thread import STOP_SECONDS, LoopThread
from aiokq.broker.metadata.controller.topic_layout import TopicSpec
from aiokq.broker.node import BrokerNode
from aiokq.connection.network import system_environment
from aiokq.core import forks, limits
from aiokq.core.environment import Environment
from aiokq.core.ephemeral_files import EphemeralFiles
from aiokq.core.errors import (
    Closed,
    ConfigError,
    KafkaError,
    UnknownTopicOrPartition,
    WrongLoop,
)
from aiokq.core.supervisor import handed_over, shielded, warn_unclosed

if TYPE_CHECKING:
    import ssl

    from aiokq.broker.security.authentication.own_check import Authenticate
    from aiokq.broker.security.authorization.caller_authorizer import Authorize
    from aiokq.broker.security.quotas.caller_quotas import QuotaCallable
    from aiokq.core.acls import Acl
    from aiokq.core.files import Files

__all__ = ["EmbeddedCluster"]

T = TypeVar("T")

NOT_RUNNING: Final = "the embedded cluster is not running: enter it with `with` or `async with`"


class EmbeddedCluster:
    """A Kafka cluster in this process, for any client.

    `async with` runs the cluster on the running loop. `with` runs it on a thread with its own loop,
    for blocking code.

    All coroutine methods except `start` may be called from any event loop, and run on the
    cluster's loop. If the cluster's loop is not running, or stops before the call ends, the call
    raises `WrongLoop`. If the loop is closed before the cluster, the cluster releases its port,
    lock and temporary directory when it is garbage-collected.

    Args:
        brokers: number of nodes; must be 1, because brokers do not replicate yet.
        data_dir: directory of the data; None for a temporary directory, which `close` removes.
        port: TCP port of the first listener; 0 for a free port or, if `settings` has `listeners`,
            for the port given there. Without `listeners`, the cluster listens on 127.0.0.1.
        profile: `dev` for short waits in groups, `kafka` for Kafka's defaults.
        settings: broker settings by Kafka's names, in which `_` may replace `.`.
        features: levels of features of a new cluster, such as `{"transaction.version": 1}`; other
            features get their default. Existing data, in `data_dir` or `restore_from`, keeps its
            levels.
        acls: ACLs as lines, such as `"User:alice Allow Read Topic:orders"` (see `Acl`), or as
            `Acl`. They turn on access control: clients may perform only operations that an ACL
            allows. They are added to the ACLs in existing data.
        authorize: a function or coroutine function that replaces ACLs. It is called with the
            `Principal`, the client's IP address, an `Operation` and a `Resource`, and returns
            whether the operation is allowed. It runs on the cluster's loop, so it must not block.
            An exception denies the operation.
        restore_from: a snapshot, or the directory of a stopped broker. The cluster starts with a
            copy of the data. The directory `data_dir`, if given, must be empty or not exist yet.
        quota: `quota(principal, client_id, key)` returns the rate that a client may have, or None
            to apply the quotas stored in the cluster. `principal` is a text such as "User:alice".
            `key` is `producer_byte_rate`, `consumer_byte_rate`, `request_percentage` or
            `controller_mutation_rate`. All clients of a principal share the rate, whatever their
            client ids; with a `SharedQuota`, `quota` decides which clients share a rate. `quota` is
            a function or a coroutine function, called on the cluster's loop. The first request of a
            client waits for the answer, at most ten seconds. An answer is used for a second; then
            the function is called again in the background.
        users: passwords by user name. Clients must log in by SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN.
            Their SCRAM credentials are added to those in the data.
        authenticate: checks a login. `authenticate(mechanism, listener, name, secret)` gets the
            name and password for PLAIN, or "" and the token for OAUTHBEARER. It returns the name of
            the user, a `Principal`, an `ExpiringLogin` (which adds the end of the session), or None
            to refuse the login. A function runs on the cluster's loop and must not block; a
            coroutine function may wait. At most 64 of its calls run at a time in a node.
            `authenticate` is not called for the names in `users`; if it is slow, the time of a
            refusal therefore tells a client whether a name is in `users`.
        ssl_context: an `ssl.SSLContext` of a server, with a certificate, for the listeners with
            TLS. It replaces all `ssl.` settings but `ssl.principal.mapping.rules`. Without
            `listeners` in `settings`, the only listener has TLS. The context is not copied: a
            certificate that is loaded into it later counts for new connections.

    Raises:
        ConfigError: an argument, a setting or a feature is unknown, out of range or of the wrong
            type. When entered: a port is in use, `data_dir` cannot be written, or `restore_from`
            cannot be restored.
        OSError: when entered: another error of a listener, such as an address that this machine
            does not have, or an I/O error during the copy of `restore_from`.
        KafkaStorage: when entered: the data directory is in use or has an I/O error, or the data in
            it or in `restore_from` is damaged.
        UnsupportedVersion: when entered: `users` are given, and the metadata.version of the data
            does not support SCRAM credentials.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        profile: str = "dev",
        settings: Mapping[str, object] | None = None,
        features: Mapping[str, int] | None = None,
        acls: Iterable[str | Acl] | None = None,
        authorize: Authorize | None = None,
        restore_from: str | os.PathLike[str] | None = None,
        quota: QuotaCallable | None = None,
        users: Mapping[str, str] | None = None,
        authenticate: Authenticate | None = None,
        ssl_context: ssl.SSLContext | None = None,
        environment: Environment | None = None,
        **unknown: Never,
    ) -> None:
        if unknown:
            raise unknown_argument(unknown)
        self._users = checked_users(users)
        if authenticate is not None and not callable(authenticate):
            raise ConfigError(f"authenticate must be a function or None, not {authenticate!r}")
        self._authenticate = authenticate
        checked = node_arguments(
            brokers,
            is_ephemeral=data_dir is None,
            port=port,
            profile=profile,
            settings=settings,
            environment=environment,
            has_acls=acls is not None,
            users=self._users,
            own_check=authenticate is not None,
            ssl_context=ssl_context,
        )
        self._settings, self._listeners, self._node_id = checked
        self._authorizer = authorizer_of(authorize, acls, self._settings)
        self._acls = checked_acls(acls, self._settings)
        self._features = new_features(features)
        self._data_dir = (
            None if data_dir is None else path_text("data_dir", data_dir, OPTIONAL_PATH)
        )
        self._given_environment = environment
        self._environment: Environment | None = None
        self._restore_from = (
            None if restore_from is None else path_text("restore_from", restore_from, OPTIONAL_PATH)
        )
        self._quota = callable_argument("quota", quota)
        self._lasting_files: Files | None = None
        self._node: BrokerNode | None = None
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Future[None] | None = None
        self._thread: LoopThread | None = None
        self._temporary: str | None = None
        self._leftover: weakref.finalize[..., BrokerNode] | None = None
        self._bootstrap_servers: str | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every node on the first advertised listener, separated by commas.

        Raises:
            Closed: the cluster is not running.
        """
        if self._bootstrap_servers is None:
            raise Closed(NOT_RUNNING)
        return self._bootstrap_servers

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return `host:port` of every node on an advertised listener, separated by commas.

        Args:
            listener: the listener's name; upper and lower case do not matter.

        Raises:
            ConfigError: no listener of this name is advertised, or `listener` is not a str.
            Closed: the cluster is not running.
        """
        name = name_text("listener", listener, "a listener")
        servers = self.node.servers
        endpoint = servers.advertised(name.upper())
        if endpoint is None:
            names = ", ".join(one.name for one in servers.all_advertised())
            raise ConfigError(
                f"listener {listener!r} is not advertised: the advertised listeners are {names}"
            )
        return endpoint.address

    def client_settings(
        self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256"
    ) -> dict[str, str]:
        """Return the settings with which a client of aiokq connects to the first listener.

        `Cluster(**kafka.client_settings("alice"))` logs in as one of the `users`.

        Args:
            user: a name in `users`; None for settings without a login.
            mechanism: SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN.

        Raises:
            ConfigError: `users` has no such name, or the listener does not have the mechanism.
            Closed: the cluster is not running.
        """
        servers = self.node.servers
        name = servers.all_advertised()[0].name
        found = {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": servers.configured.protocol(name),
        }
        if user is None:
            return found
        password = (self._users or {}).get(user)
        if password is None:
            raise ConfigError(f"users has no {user!r}")
        security = servers.configured.security.get(name)
        if security is None or mechanism not in security.mechanisms:
            raise ConfigError(f"listener {name} does not have the mechanism {mechanism!r}")
        return found | {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }

    @property
    def node(self) -> BrokerNode:
        """The node, which may be used only on its own event loop.

        Raises:
            Closed: the cluster is not running.
        """
        if self._node is None:
            raise Closed(NOT_RUNNING)
        return self._node

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        configs: Mapping[str, str | int | float | bool] | None = None,
    ) -> None:
        """Create a topic.

        May be called from any event loop and, with `run()`, from any thread.

        Args:
            name: name of the topic.
            partitions: number of partitions; None for `num.partitions`.
            configs: topic settings by Kafka's names.

        Raises:
            ValueError, TypeError: `partitions` or `configs` is out of range or of the wrong type.
            ConfigError: `name` is not a str.
            BrokerError: the topic cannot be created: TopicExists, InvalidTopic,
                InvalidConfiguration and others.
            Closed: the cluster is not running.
            WrongLoop: the cluster's loop is not running, or stopped during the call; or this
                process was forked from the cluster's process.
        """
        if partitions is not None:
            limits.count(partitions, "partitions")
        name_text("name", name, "a topic")
        spec = TopicSpec(name=name, partitions=partitions, configs=configs_text(configs))
        await self._on_loop(functools.partial(self._create, spec))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records.

        May be called from any loop or thread, like `create_topic`.

        Raises:
            UnknownTopicOrPartition: the topic does not exist.
            ConfigError: the name is not a str.
            KafkaStorage: an I/O error.
            Closed, WrongLoop: see `create_topic`.
        """
        name_text("name", name, "a topic")
        await self._on_loop(functools.partial(self._delete, name))

    async def reset(self) -> None:
        """Delete all topics and records, all groups, committed offsets and producer state.

        Intended for tests that share a cluster. The call takes about a millisecond. Clients stay
        connected and get errors for their topics. Users and their credentials stay, including those
        that clients have added. May be called from any loop or thread, like `create_topic`.

        Raises:
            ConfigError: the cluster has a `data_dir`, which `reset` does not delete.
            KafkaStorage: an I/O error.
            Closed, WrongLoop: see `create_topic`.
        """
        if self._data_dir is not None:
            raise ConfigError(
                f"reset() would delete the data in {self._data_dir}: use it only on a cluster "
                "without data_dir"
            )
        await self._on_loop(self._reset)

    async def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Copy the data, as of one moment, to a new directory while the cluster runs.

        A broker can use the new directory as its data directory. A cluster with `restore_from=path`
        copies the new directory and leaves it unchanged. The copy has the SCRAM credentials of all
        users, from which weak passwords can be guessed. `snapshot` may be called from any loop or
        thread, like `create_topic`.

        Raises:
            ConfigError: `path` is a file, a directory that is not empty, or not a path.
            BrokerError: KafkaStorage for an I/O error, or if segments were deleted or compacted
                during each of several attempts; or the error of a partition whose log is not
                available. Nothing is left at `path`.
            Closed, WrongLoop: see `create_topic`.
        """
        await self._on_loop(functools.partial(self._snapshot, path_text("path", path)))

    def run(self, coro: Coroutine[object, object, T], timeout: float | None = STOP_SECONDS) -> T:
        """Run a coroutine on the cluster's thread and return its result.

        For a cluster that was entered with `with`: `kafka.run(kafka.create_topic("t"))`.

        Args:
            timeout: seconds to wait; None waits without limit.

        Raises:
            Closed: the cluster was not entered with `with`, or was closed before the coroutine
                ended.
            TimeoutError: the coroutine did not end in time; it continues.
            ValueError, TypeError: the timeout is not a finite number of seconds.
            WrongLoop: called on the cluster's own thread, or in a forked child.
        """
        try:
            limits.optional_seconds(timeout)
            self._refuse_forked()
            if self._thread is None or self._node is None:
                raise Closed("run() needs a running cluster that was entered with `with`")
        except (TypeError, ValueError, KafkaError):
            coro.close()
            raise
        return self._thread.run(coro, timeout)

    async def _create(self, spec: TopicSpec) -> None:
        await self.node.metadata.create_topic(spec)

    async def _reset(self) -> None:
        await self.node.reset()

    async def _snapshot(self, path: str) -> None:
        from aiokq.broker.snapshot import take_snapshot

        # The copy must be durable, but without a data_dir the node's own `files` may omit syncs.
        await take_snapshot(self.node, path, files=self._lasting_files)

    async def _delete(self, name: str) -> None:
        topic = self.node.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        await self.node.metadata.delete_topic(topic)

    async def _on_loop(self, call: Callable[[], Coroutine[object, None, T]]) -> T:
        """Run `call` on the cluster's loop, the only loop that may use the node."""
        self._refuse_forked()
        loop = self._loop
        if loop is None or self._node is None:
            raise Closed(NOT_RUNNING)
        if asyncio.get_running_loop() is loop:
            return await call()
        return await handed_over(call, loop, name="embedded cluster", gone=self._loop_closed)

    def _loop_closed(self) -> WrongLoop:
        return WrongLoop(
            "the event loop on which this EmbeddedCluster was started is not running, or "
            "stopped before the call ended: use the cluster on its own loop, or enter it by "
            "`with`, which gives it a thread. With pytest-asyncio, a fixture and the tests that "
            'use it need the same loop_scope, as @pytest_asyncio.fixture(scope="session", '
            'loop_scope="session") and @pytest.mark.asyncio(loop_scope="session")'
        )

    async def __aenter__(self) -> EmbeddedCluster:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start on the running loop. `async with` calls this method.

        Raises:
            ConfigError: the cluster is running already, a port is in use, `data_dir` cannot be
                created or written, or `restore_from` cannot be restored.
            OSError: another error of a listener, or an I/O error during the copy of `restore_from`.
            KafkaStorage: the data directory is in use or has an I/O error, or the data in it or in
                `restore_from` is damaged.
            UnsupportedVersion: `users` are given, and the metadata.version of the data does not
                support SCRAM credentials.
            WrongLoop: this process was forked from the cluster's process.
            ImportError: the extensions of aiokq's compiled core are of different builds; the
                message says what to do.
        """
        self._refuse_forked()
        if self._pid:
            raise ConfigError("this embedded cluster is already running")
        if fastpath.COMPILED:
            # Import now, which takes 2 ms, so that a failure of the import fails the start.
            # Otherwise the node would import the module after its start; a failure would then stop
            # the node, and clients would see only lost connections.
            importlib.import_module("aiokq.fastpath.broker")
        environment = self._given_environment or system_environment()
        self._lasting_files = environment.files
        if self._data_dir is not None:
            directory = self._data_dir
        elif self._given_environment is None:
            directory = self._temporary = tempfile.mkdtemp(prefix="aiokq-")
            environment = dataclasses.replace(
                environment, files=EphemeralFiles(), is_ephemeral=True
            )
        else:
            directory = self._temporary = "/aiokq-ephemeral"
        self._environment = environment
        self._pid = os.getpid()
        if self._restore_from is not None:
            from aiokq.broker.snapshot import restore_snapshot

            try:
                await shielded(
                    environment.offload.run(
                        restore_snapshot, environment.files, self._restore_from, directory
                    ),
                    name="restore a snapshot",
                )
            except BaseException:
                self._let_go()
                raise
        node = BrokerNode(
            self._settings,
            environment,
            data_dir=directory,
            listeners=self._listeners,
            node_id=self._node_id,
            features=self._features,
            authorizer=self._authorizer,
            acls=self._acls,
            quota=self._quota,
            users=self._users,
            authenticate=self._authenticate,
        )
        try:
            await node.start()
        except BaseException as error:
            self._let_go()
            if misuse := start_error(error, self._listeners, self._data_dir):
                raise misuse from error
            raise
        if self._temporary is not None and self._given_environment is None:
            # If `close` is never called, the directory is removed when the node is
            # garbage-collected or the process exits.
            self._leftover = weakref.finalize(node, _remove_leftover, os.getpid(), directory)
        self._node = node
        self._loop = asyncio.get_running_loop()
        forks.watch_loop(self._loop)
        self._bootstrap_servers = node.servers.all_advertised()[0].address

    async def close(self) -> None:
        """Stop the cluster and remove its temporary directory. Idempotent.

        May be called from any loop. In a forked child, the call does nothing, because the cluster
        belongs to the parent.

        Raises:
            WrongLoop: the cluster's loop is not running, or stopped during the call. If that loop
                is closed, the cluster's resources are released when the cluster is
                garbage-collected, and the next start on its `data_dir` recovers the logs.
        """
        loop = self._loop
        if self._forked or loop is None:
            return
        if asyncio.get_running_loop() is loop:
            await self._close()
            return
        try:
            await handed_over(self._close, loop, name="close", gone=self._loop_closed)
        except WrongLoop:
            if loop.is_closed():
                # Finalisers release the port, the lock and the temporary directory when the node is
                # garbage-collected.
                self._forget_node()
                self._loop = self._closing = None
                self._environment = self._temporary = self._leftover = None
                self._pid = 0
            raise

    async def _close(self) -> None:
        """Close the node; a second call waits until the first call has finished."""
        if self._closing is not None:
            await asyncio.shield(self._closing)
            return
        node = self._forget_node()
        if node is None:
            return
        closing = self._closing = asyncio.get_running_loop().create_future()
        try:
            await node.close()
        finally:
            self._let_go()
            self._loop = self._closing = None
            closing.set_result(None)
            if self._thread is not None:
                self._thread.stop()

    def _forget_node(self) -> BrokerNode | None:
        node, self._node = self._node, None
        self._bootstrap_servers = None
        return node

    @property
    def _forked(self) -> bool:
        return self._pid != 0 and os.getpid() != self._pid

    def _refuse_forked(self) -> None:
        if self._forked:
            raise WrongLoop(
                f"this EmbeddedCluster belongs to process {self._pid}, of which this process is "
                "a fork: clients in the fork may connect to its address, but control the "
                "cluster in the process that started it"
            )

    def _let_go(self) -> None:
        """Remove the temporary directory; stop the executor if the cluster created it."""
        if self._forked:
            return
        self._pid = 0
        environment, self._environment = self._environment, None
        directory, self._temporary = self._temporary, None
        if environment is None:
            return
        if directory is not None and environment.files.exists(directory):
            environment.files.remove_tree(directory)
        if self._leftover is not None:
            self._leftover.detach()
            self._leftover = None
        if self._given_environment is None:
            environment.offload.close()

    def __del__(self) -> None:
        if getattr(self, "_node", None) is not None and not self._forked:
            warn_unclosed(self)

    def __repr__(self) -> str:
        return f"<EmbeddedCluster {self._bootstrap_servers or 'not running'}>"

    def __enter__(self) -> EmbeddedCluster:
        thread = LoopThread(self.start, self._close)
        thread.enter()
        self._thread = thread
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        thread = self._thread
        if self._forked or thread is None:
            return
        try:
            thread.leave()
        finally:
            self._thread = None


def _remove_leftover(pid: int, directory: str) -> None:
    """Remove the temporary directory, except in a forked child, which runs finalisers too."""
    if os.getpid() == pid:
        shutil.rmtree(directory, ignore_errors=True)
