"""A master on a stepped store, with a network in memory."""

import random
from pathlib import Path
from typing import Any

from pocketmq.store.append_result import PutStatus
from pocketmq.store.ha.environment import HaEnvironment
from pocketmq.store.ha.service import HaService
from pocketmq.store.ha.state import HaState
from tests.store.ha.transports import MemoryListener, ScriptedSlave
from tests.store.log_fakes import Stepped

HEARTBEAT_MS = 5000


class Master(Stepped):
    """Its workers step when ``settle`` is called; events of the service are in ``ha_events``."""

    def __init__(self, root: Path, *, seed: int = 1, claim: Any = None, **changes: object) -> None:
        super().__init__(root, None, **({"broker_role": "SYNC_MASTER"} | changes))
        self.state = HaState(self.store.file_system, self.store.paths, self.clock, random.Random(seed).randbytes)
        self.state.load()
        self.ha = HaService(HaEnvironment(self.store, self.state, "C", "b", self.clock, self.runner, self.log))
        self.ha.shown.claim = claim
        self.listener = MemoryListener()
        self.ha.open_port("", 0, lambda address, port: self.listener)
        self.epoch = self.ha.start()
        self.told: list[tuple[int, PutStatus]] = []

    def settle(self, rounds: int = 3) -> None:
        """Let every worker step a few times."""
        for _ in range(rounds):
            self.runner.step_all()

    def slave(self, peer: str = "10.0.0.2:5000", window_bytes: int = 64 << 10, **hello: object) -> ScriptedSlave:
        """Connect a slave, send its hello and receive the answer."""
        slave = ScriptedSlave(self.listener, peer, window_bytes)
        slave.hello(**hello)
        self.settle()
        slave.receive()
        return slave

    def following(self, peer: str = "10.0.0.2:5000", window_bytes: int = 64 << 10, **hello: object) -> ScriptedSlave:
        """Return a slave that follows: it has agreed on its start and received the log."""
        slave = self.slave(peer, window_bytes, **hello)
        assert slave.welcome is not None, slave.refused
        slave.ack(slave.welcome.start_offset)
        self.settle()
        slave.receive()
        return slave

    def send(self, *texts: bytes, wait: bool = True) -> int:
        """Append a group and ask for its acknowledgement; return its end."""
        end = self.append(*texts)
        self.store.acknowledge(end, wait, lambda status: self.told.append((end, status)))
        return end

    def log_bytes(self, start: int = 0) -> bytes:
        return self.store.log.read(start, self.store.committed_offset - start).tobytes()

    def events(self, *names: str) -> list[dict[str, object]]:
        return [event for event in self.log.events if event["event"] in names]

    @property
    def refusals(self) -> list[str]:
        return [str(event["why"]) for event in self.events("ha_connection_refused")]

    def close(self) -> None:
        self.ha.stop()
        self.store.close()
