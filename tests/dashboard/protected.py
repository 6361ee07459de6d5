"""A name server and a broker that know their users, on a loop of their own thread."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pocketmq.auth.config import AuthConfig
from pocketmq.auth.policies import Policy, entry_of
from pocketmq.auth.users import User
from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.store.config import StoreConfig
from pocketmq.testing.broker import STORE_SETTINGS

ROOT = ("root", "root-secret")
READER = ("reader", "reader-secret")
"""May see everything, and change nothing."""
AUTH = AuthConfig(
    authentication_enabled=True,
    authorization_enabled=True,
    init_username=ROOT[0],
    init_password=ROOT[1],
    inner_access_key="inner",
    inner_secret_key="inner-secret",
)
SEES = [(resource, ["Get", "List", "Sub"]) for resource in ("Topic:*", "Group:*", "Cluster:*")]


@contextmanager
def protected(directory: Path) -> Iterator[str]:
    """Yield the address of the name server."""
    started, stop = threading.Event(), asyncio.Event()
    addresses: list[str] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with contextlib.AsyncExitStack() as stack:
            namesrv = NamesrvApp(NamesrvConfig(listen_port=0), auth_config=AUTH)
            await namesrv.start()
            stack.push_async_callback(namesrv.stop)
            config = BrokerConfig(broker_name="pocket", listen_port=0, namesrv_addr=namesrv.address)
            store = StoreConfig(**STORE_SETTINGS, store_path_root_dir=str(directory))
            broker = BrokerApp(config, store, auth_config=AUTH, auth=namesrv.auth)
            await broker.start()
            stack.push_async_callback(broker.stop)
            table = broker.auth.table
            policy = Policy(tuple(entry_of(resource, actions, "Allow") for resource, actions in SEES))
            user = User(username=READER[0], password=READER[1])
            table.replace(table.contents.with_user(user).with_policies(READER[0], (policy,)))
            addresses.append(namesrv.address)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="protected")
    thread.start()
    try:
        assert started.wait(60)
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()
