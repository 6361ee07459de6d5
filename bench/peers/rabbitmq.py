"""RabbitMQ from Debian with its stream plugin: one Erlang node, and the port mapper it needs."""

import os
import subprocess
from typing import Any

from bench.peers.base import Server, Unavailable, find_program, installed_by_apt

PLACE = "/usr/lib/rabbitmq/bin"
"""The scripts themselves: those in /usr/sbin change the user first."""


class RabbitmqServer(Server):
    """One node with listeners for AMQP and for streams, all on loopback."""

    name = "rabbitmq"

    @classmethod
    def obtain(cls) -> str:
        installed_by_apt("rabbitmq-server", "rabbitmq-server", PLACE)
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"], capture_output=True, text=True, check=False
        )
        return done.stdout.split("-")[0] or "of unknown version"

    def start(self) -> None:
        port, stream_port, distribution_port, mapper_port = self.ports(4)
        mapper = find_program("epmd", "/usr/lib/erlang/bin")
        if mapper is None:
            raise Unavailable("epmd of Erlang is missing: apt-get install erlang-base")
        environment = self._environment(port, distribution_port, mapper_port)
        (self.directory / "plugins").write_text("[rabbitmq_stream].\n")
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{port}\n"
            f"stream.listeners.tcp.1 = 127.0.0.1:{stream_port}\n"
            f"stream.advertised_host = 127.0.0.1\nstream.advertised_port = {stream_port}\n"
            "log.console.level = error\nlog.file = false\n"
        )
        mapping = [mapper, "-port", str(mapper_port), "-address", "127.0.0.1"]
        self.launch(mapping, "epmd", mapper_port, environment=environment)
        script = f"{PLACE}/rabbitmq-server"
        program = script if os.path.exists(script) else find_program("rabbitmq-server")
        assert program is not None
        self.launch([program], "rabbitmq-server", port, stream_port, within_s=90, environment=environment)

    def _environment(self, port: int, distribution_port: int, mapper_port: int) -> dict[str, str]:
        here = str(self.directory.resolve())
        return {
            "HOME": here,
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_MNESIA_BASE": f"{here}/mnesia",
            "RABBITMQ_LOG_BASE": f"{here}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": f"{here}/pid",
            "RABBITMQ_CONFIG_FILE": f"{here}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{here}/none.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{here}/plugins",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    @property
    def target(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.ports(4)[0], "stream_port": self.ports(4)[1]}
