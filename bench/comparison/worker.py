"""The client process of a peer: one JSON job a line on standard input, one JSON answer a line on standard output.

Lives here: which client a peer has, what each job does, the CPU time it took.
Run by ``bench.comparison.fleet``: ``python -m bench.comparison.worker CLIENT``.

Jobs: ``create``, ``delete`` (``topics``), ``closed`` (a closed loop), ``open`` (an open loop), ``read``, ``drain``
(read a backlog while an open loop adds to it), ``deliver`` (one message after the other to a waiting consumer),
``first`` (the time until a send succeeds), ``quit``. Every job names its ``target``.
"""

import asyncio
import importlib
import json
import sys
import time
from typing import Any

import msgspec

from bench.base.schedule import Schedule
from bench.clients.base import Client, ClosedLoad, Measured, ReadTimer, closed_loop, delivery_loop, open_loop
from pocketmq.remoting.loop import new_event_loop

CLIENTS = {
    "pocketmq": "bench.clients.pocketmq_client:PocketmqClient",
    "redis": "bench.clients.redis_client:RedisClient",
    "nats": "bench.clients.nats_client:NatsClient",
    "rabbitmq": "bench.clients.rabbitmq_client:RabbitmqClient",
    "rabbitmq-stream": "bench.clients.rabbitmq_stream_client:RabbitmqStreamClient",
    "aiokafka": "bench.clients.aiokafka_client:AiokafkaClient",
    "echo": "bench.lean.echo:EchoClient",
    "confluent": "bench.clients.confluent_client:ConfluentClient",
}
JOB_S_MAX = 180.0
FIRST_EVERY_S = 0.02
FIRST_AT_ONCE = 50


def client_class(name: str) -> type[Client]:
    """Return the client of this name; raises ``ImportError`` where its library is missing."""
    module, _, attribute = CLIENTS[name].partition(":")
    found: type[Client] = getattr(importlib.import_module(module), attribute)
    assert issubclass(found, Client)
    return found


class Jobs:
    """Runs jobs one after the other; a job with ``keep`` leaves its clients open for the next with the same target."""

    def __init__(self, kind: type[Client]) -> None:
        self.kind = kind
        self._kept: list[Client] = []
        self._kept_key = ""

    async def run(self, job: dict[str, Any]) -> dict[str, object]:
        """Open the job's clients, do it, close them."""
        if job["op"] == "first":
            return await _first(self.kind, job)
        key = json.dumps([job["target"], job.get("connections", 1)]) if job.get("keep") else ""
        if not key or key != self._kept_key:
            await self._close_kept()
            await self._open(job)
            if job["op"] in ("closed", "open", "drain"):
                await self._first_sends(job)
        self._kept_key = key
        try:
            cpu_s = time.process_time()
            answer = await _do(self._kept, job)
            answer["client_cpu_s"] = round(time.process_time() - cpu_s, 4)
            return answer
        finally:
            if not key:
                await self._close_kept()

    async def _open(self, job: dict[str, Any]) -> None:
        wanted = int(job.get("connections", 1))
        in_flight = int(job.get("in_flight", 64))  # an open loop does not know; 64 connections serve Redis well
        target = {**job["target"], "in_flight": max(1, in_flight // wanted)}
        for _ in range(wanted):
            client = self.kind(target)
            await client.open()
            self._kept.append(client)

    async def _first_sends(self, job: dict[str, Any]) -> None:
        """Send one message by each client: some connect only then, which no case measures."""
        body, topic = bytes(int(job["size_bytes"])), job["topics"][0]
        for start in range(0, len(self._kept), FIRST_AT_ONCE):
            clients = self._kept[start : start + FIRST_AT_ONCE]
            await asyncio.gather(*(client.send(topic, body) for client in clients))

    async def _close_kept(self) -> None:
        closing, self._kept, self._kept_key = self._kept, [], ""
        for client in closing:
            try:
                async with asyncio.timeout(20):
                    await client.close()
            except Exception as error:  # the measurements are complete: log it and go on
                print(f"closing {self.kind.__name__}: {type(error).__name__}: {error}", file=sys.stderr)


async def _do(clients: list[Client], job: dict[str, Any]) -> dict[str, object]:
    client, op = clients[0], job["op"]
    if op == "create":
        await client.create(job["topics"], int(job.get("queues", 4)))
        return {}
    if op == "delete":
        await client.delete(job["topics"])
        return {}
    if op == "closed":
        load = msgspec.convert(job, ClosedLoad)
        measured = await (client.closed(load) if len(clients) == 1 else closed_loop(clients, load))
        return measured.line()
    if op == "open":
        schedule = Schedule(float(job["rate"]), float(job["seconds"]), int(job.get("seed", 1)))
        topic = job["topics"][0]
        measured = await open_loop(clients, topic, int(job["size_bytes"]), schedule, bool(job.get("follow")))
        return measured.line()
    if op == "read":
        return (await _read(client, job)).line()
    if op == "deliver":
        topic, seconds = job["topics"][0], float(job["seconds"])
        return (await delivery_loop(clients[0], clients[-1], topic, int(job["size_bytes"]), seconds)).line()
    if op == "drain":
        return await _drain(client, job)
    raise ValueError(f"no such job: {op}")


async def _read(client: Client, job: dict[str, Any]) -> Measured:
    timer = ReadTimer()
    expected = int(job["expected"])
    touched = await client.read(job["topics"][0], job["how"], expected, timer)
    if touched < expected * int(job["size_bytes"]):
        raise RuntimeError(f"{touched} bytes of bodies in {expected} messages of {job['size_bytes']}")
    return Measured(count=expected, elapsed_s=timer.ended - timer.began)


async def _drain(client: Client, job: dict[str, Any]) -> dict[str, object]:
    """Read ``expected`` messages that are there while an open loop adds more at ``rate``."""
    schedule = Schedule(float(job["rate"]), float(job["seconds"]))
    adding = asyncio.create_task(open_loop([client], job["topics"][0], int(job["size_bytes"]), schedule, follow=False))
    drained = await _read(client, job)
    measured = await adding
    return {
        **measured.line(),
        "sends_acknowledged": measured.count,
        "send_rate_offered": job["rate"],
        "count": drained.count,
        "elapsed_s": round(drained.elapsed_s, 4),
    }


async def _first(kind: type[Client], job: dict[str, Any]) -> dict[str, object]:
    """Try until one send is acknowledged; return the seconds from the beginning of this job."""
    begin = time.perf_counter()
    while True:
        client = kind(job["target"])
        try:
            async with asyncio.timeout(5):
                await client.open()
                if job.get("create"):
                    await client.create(job["topics"], int(job.get("queues", 4)))
                await client.send(job["topics"][0], bytes(int(job.get("size_bytes", 1024))))
            return {"count": 1, "elapsed_s": round(time.perf_counter() - begin, 4)}
        except Exception as error:
            if time.perf_counter() - begin > float(job.get("seconds", 120)):
                raise RuntimeError(f"no send succeeded: {type(error).__name__}: {error}") from error
            await asyncio.sleep(FIRST_EVERY_S)
        finally:
            try:
                async with asyncio.timeout(5):
                    await client.close()
            except Exception:  # it may never have been open
                pass


def main() -> None:
    """Answer jobs until ``quit`` or the end of input."""
    kind = client_class(sys.argv[1])
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda _, context: None)  # libraries' own noise after a server went away
    print(json.dumps({"ready": sys.argv[1]}), flush=True)

    jobs = Jobs(kind)

    async def limited(job: dict[str, Any]) -> dict[str, object]:
        async with asyncio.timeout(float(job.get("limit_s", JOB_S_MAX))):
            return await jobs.run(job)

    for text in sys.stdin:
        job = json.loads(text)
        if job["op"] == "quit":
            break
        try:
            answer = loop.run_until_complete(limited(job))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
