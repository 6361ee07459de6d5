"""What users, signatures and TLS cost: the same sends to brokers with and without, in pairs of rounds.

Four brokers (``pocketmq standalone``) run for the whole time, each in a process of its own: ``plain``; ``users``, where
each request needs a user and a policy that allows it; ``tls``; ``both``. Rounds go from one to the next and back, so
that other work on the machine affects all of them. A round gives CPU time of the broker's process a message (from the
scheduler: a tick is too coarse), CPU time of the client's process, messages per second and the median of the latencies;
a ratio is that to the ``plain`` round beside it. ``json``: SDK clients that send RocketMQ's JSON headers, which sign
each request where there are users; the HMAC of one is measured beside them. ``java``: a blocking connection that sends
what RocketMQ's Java client writes, one message after the other, to the brokers without TLS.
"""

import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.base.harness import Row, in_loop, scaled, workspace
from bench.calls.rocketmq_client import FORMS, RocketmqConnection
from pocketmq.cli.bench.cases import closed_loop
from pocketmq.cli.own_broker import OwnBroker
from pocketmq.cli.tls.making import make_certificates
from pocketmq.client import ClientInstance, ClientOptions, Message, Producer
from pocketmq.client.admin.access_admin import AccessAdmin
from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.security.client_security import TLS
from pocketmq.remoting.security.credentials import Credentials
from pocketmq.remoting.security.signature import sign

BODY = bytes(1024)
TOPIC = "BenchAccess"
QUEUES = 4
PAIRS = scaled(20, 3)
SECONDS = scaled(1.0, 0.3)
KINDS = ("plain", "users", "tls", "both")
CASES = {
    "one in flight": ("MSGPACK", 1),
    "64 in flight": ("MSGPACK", 64),
    "json, 64 in flight": ("JSON", 64),
    "java, one in flight": ("JAVA", 1),
}
ADMIN, SENDER = Credentials("admin", "secret-of-admin"), Credentials("sender", "secret-of-sender")
AUTH = f"""
[auth]
authentication_enabled = true
authorization_enabled = true
init_username = "{ADMIN.access_key}"
init_password = "{ADMIN.secret_key}"
inner_access_key = "inner"
inner_secret_key = "secret-of-inner"
"""
HMACS = 20_000


@dataclass(slots=True)
class Side:
    """A broker, and the rounds of the case under way."""

    kind: str
    broker: OwnBroker
    load: Any = None
    broker_us: list[float] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)

    def cpu_ns(self) -> int:
        """Return the ns that all threads of the process have run."""
        tasks = Path(f"/proc/{self.broker.process_id}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    async def one_round(self) -> None:
        """Send for a while, and keep what it took."""
        cpu_ns, own_s = self.cpu_ns(), time.process_time()
        row = await self.load()
        self.broker_us.append((self.cpu_ns() - cpu_ns) / 1e3 / row.count)
        self.client_us.append((time.process_time() - own_s) * 1e6 / row.count)
        self.rates.append(row.rate)
        self.p50_ms.append(row.percentile_ms(0.5))


def settings_of(kind: str, directory: Path) -> str:
    """Return the settings file of a broker."""
    tls = f"""
[tls]
server_cert_path = "{directory}/tls/server.pem"
server_key_path = "{directory}/tls/server.key"
enable = true
client_trust_cert_path = "{directory}/tls/ca.pem"
"""
    return {"plain": "", "users": AUTH, "tls": tls, "both": AUTH + tls}[kind]


async def measure(case: str, sides: list[Side], directory: Path) -> list[Row]:
    """Run all rounds of a case; return a row for each kind."""
    form, in_flight = CASES[case]
    if form == "JAVA":
        sides = [side for side in sides if side.kind in ("plain", "users")]
    async with AsyncExitStack() as stack:
        for side in sides:
            users = side.kind in ("users", "both")
            tls = TLS(ca=str(directory / "tls" / "ca.pem")) if side.kind in ("tls", "both") else None
            async with Admin(side.broker.namesrv, credentials=ADMIN if users else None, tls=tls) as admin:
                await admin.create_topic(TOPIC, queues=QUEUES)
                if users and SENDER.access_key not in str(await AccessAdmin(admin).users()):
                    await AccessAdmin(admin).create_user(SENDER.access_key, SENDER.secret_key)
                    await AccessAdmin(admin).create_acl(SENDER.access_key, f"Topic:{TOPIC}", ["Pub"])
            credentials = SENDER if users else None
            send: Callable[[], Awaitable[object]]
            if form == "JAVA":
                connection = RocketmqConnection(side.broker.address, FORMS["JSON"], credentials)
                stack.callback(connection.close)
                send = partial(send_blocking, connection)
            else:
                options = ClientOptions(serialize_type=form)
                instance = ClientInstance(side.broker.namesrv, options=options, credentials=credentials, tls=tls)
                producer = await stack.enter_async_context(Producer(f"bench-{side.kind}", instance=instance))
                send = partial(producer.send, Message(TOPIC, BODY))
            side.load = partial(closed_loop, send, in_flight=in_flight, seconds=SECONDS)
            await side.load()
            for values in (side.broker_us, side.client_us, side.rates, side.p50_ms):
                values.clear()
        for number in range(PAIRS):
            for side in sides if number % 2 else reversed(sides):
                await side.one_round()
    plain = sides[0]
    return [
        {
            "case": case,
            "kind": side.kind,
            "pairs": PAIRS,
            "per_s": round(statistics.median(side.rates)),
            "p50_ms": round(statistics.median(side.p50_ms), 3),
            "broker_us": round(statistics.median(side.broker_us), 1),
            "client_us": round(statistics.median(side.client_us), 1),
            **ratio("broker_cpu", side.broker_us, plain.broker_us),
            **ratio("rate", side.rates, plain.rates),
        }
        for side in sides
    ]


async def send_blocking(connection: RocketmqConnection) -> None:
    """Send one message as the Java client does; nothing else runs meanwhile."""
    connection.send(TOPIC, BODY, 1, 0.0)


def ratio(name: str, values: list[float], plain: list[float]) -> Row:
    """Return the median of the ratios of neighbouring rounds, their middle half, and the interval that holds the median
    of all possible rounds with 95 %: by rank, whatever their distribution is."""
    ratios = sorted(one / other for one, other in zip(values, plain, strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    rank = max(0, int((len(ratios) - 1.96 * len(ratios) ** 0.5) / 2))
    return {
        f"{name}_ratio": round(middle, 3),
        f"{name}_middle_half": f"{low:.3f}..{high:.3f}",
        f"{name}_95": f"{ratios[rank]:.3f}..{ratios[-1 - rank]:.3f}",
    }


def hmac_us() -> Row:
    """Return what signing one send takes, by itself."""
    fields = {f"field{number}": "value of a field" for number in range(12)}
    begun_s = time.process_time()
    for _ in range(HMACS):
        sign(SENDER, fields, BODY)
    return {"case": "one HMAC of a JSON send", "us": round((time.process_time() - begun_s) * 1e6 / HMACS, 2)}


def run() -> Iterator[Row]:
    """Yield one row for each case and kind."""
    yield hmac_us()
    with workspace() as directory, ExitStack() as stack:
        make_certificates(directory / "tls", ["127.0.0.1", "localhost"], 2, "sender")
        sides = []
        for kind in KINDS:
            file = directory / f"{kind}.toml"
            file.write_text(settings_of(kind, directory))
            file.chmod(0o600)
            arguments = ["--config", str(file), "--set", "broker.wait_time_mills_in_send_queue=60000"]
            broker = OwnBroker(data_dir=directory / kind, arguments=arguments)
            sides.append(Side(kind, stack.enter_context(broker)))
        for case in CASES:
            yield from in_loop(measure(case, sides, directory))
