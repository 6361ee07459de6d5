"""Brokers in processes of their own, as the benchmarks need them: what they use, how long a start takes.

Lives here: ``BrokerProcess`` (with a name server), ``SlaveProcess``.
"""

import sys
import time
from pathlib import Path

from bench.base.processes import cpu_s, memory_mb
from pocketmq.cli.own_broker import OwnBroker

SLAVE = ("broker.broker_name=pair", "store.ha_listen_port=-1", "store.broker_role=SLAVE", "broker.broker_id=1")


class BrokerProcess(OwnBroker):
    """``pocketmq standalone`` on a store that stays."""

    def __init__(self, data_dir: Path, *settings: str) -> None:
        super().__init__(data_dir=data_dir, arguments=[word for setting in settings for word in ("--set", setting)])

    def restarted_s(self) -> float:
        """Start; return the seconds until the ready line."""
        begin = time.perf_counter()
        self.start()
        return round(time.perf_counter() - begin, 2)

    def anonymous_mb(self) -> float:
        """Return its anonymous megabytes: mapped log pages are resident, but belong to the page cache."""
        return memory_mb([self.process_id])["anonymous_mb"]

    def cpu_s(self) -> float:
        """Return the CPU seconds used so far."""
        return cpu_s([self.process_id])


class SlaveProcess(BrokerProcess):
    """``pocketmq broker`` as a slave of the broker name ``pair``."""

    def __init__(self, data_dir: Path, namesrv: str, *settings: str) -> None:
        super().__init__(data_dir, *SLAVE, *settings)
        self.namesrv = namesrv

    def command(self) -> list[str]:
        """Return what starts a slave."""
        command = [sys.executable, "-m", "pocketmq.cli.main", "broker", "--data-dir", str(self.data_dir)]
        return [*command, "--namesrv", self.namesrv]
