"""The dashboard on RocketMQ's servers: its screens have what RocketMQ knows, and say what it does not."""

import asyncio
import re
import time

import httpx

from pocketmq.cli.dashboard.findings import findings_of
from pocketmq.client import Message, Producer, PushConsumer, ReceivedMessage
from pocketmq.client.handlers.consume_result import DeadLetter
from pocketmq.dashboard.options import DashboardOptions
from tests.dashboard.serving import serving, stream, text_of, token_of
from tests.interop.rocketmq_servers import RocketMQServers
from tests.interop.sdk_on_rocketmq import new_name, new_topic


def page_with(browser: httpx.Client, path: str, words: str) -> str:
    deadline = time.monotonic() + 60
    while words not in (text := text_of(browser.get(path))):
        assert time.monotonic() < deadline, text
        time.sleep(0.2)
    return text


async def _fill(servers: RocketMQServers, topic: str, group: str) -> None:
    """Send ten messages, let a group give one up and read the others."""
    got: list[str] = []

    def give_up(message: ReceivedMessage) -> DeadLetter | None:
        got.append(message.msg_id)
        return DeadLetter("no such customer") if message.keys == ["key-3"] else None

    consumer = PushConsumer(group, servers.namesrv, start="earliest", persist_interval_ms=200)
    consumer.subscribe(topic)(give_up)
    async with Producer(new_name("shop"), servers.namesrv) as producer, consumer:
        for at in range(10):
            await producer.send(Message(topic, b'{"at": %d}' % at, keys=[f"key-{at}"]))
        async with asyncio.timeout(60):
            while len(got) < 10:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def test_a_rocketmq_cluster_is_shown(rocketmq: RocketMQServers) -> None:
    topic, group = asyncio.run(new_topic(rocketmq)), new_name("dashboard-group")
    asyncio.run(_fill(rocketmq, topic, group))
    options = DashboardOptions(namesrv=rocketmq.namesrv, interval_s=0.5, allow_writes=True, doctor=findings_of)
    with serving(options) as served:
        browser = served.client()
        assert "RocketMQ V" in page_with(browser, "/", "1 broker answers")
        page_with(browser, f"/topics?q={topic}", topic)
        page_with(browser, f"/groups?q={group}", group)
        assert "Behind, messages 0" in page_with(browser, f"/groups/{group}", "Behind, messages")
        token = token_of(browser.get(f"/topics/{topic}"))
        made = browser.post(f"/topics/{topic}/publish", data={"token": token, "body": "by hand", "keys": "hand"})
        assert made.status_code == 303, text_of(made)
        found = page_with(browser, f"/messages?topic={topic}&key=hand", "by hand")
        assert "by hand" in found
        assert '{"at": 7}' in page_with(browser, f"/messages?topic={topic}&key=key-7", "key-7")
        link = re.search(r'href="(/message\?id=[^"]+)"', browser.get(f"/messages?topic={topic}&key=key-7").text)
        assert link is not None
        assert '"at": 7' in text_of(browser.get(link[1].replace("&amp;", "&")))
        assert len(re.findall(r"/message\?id=", browser.get(f"/messages?topic={topic}&key=").text)) == 11
        letters = page_with(browser, f"/dead-letters/{group}", "1 message.")
        assert f"not told {topic} 1 key-3" in letters, "RocketMQ's broker drops the reason that the consumer gave"
        page_with(browser, "/waiting", "is not a PocketMQ broker")
        page_with(browser, "/replication", "RocketMQ")
        reset = {"token": token, "topic": topic, "to": "earliest"}
        answer = browser.post(f"/groups/{group}/reset", data=reset)
        assert answer.status_code == 303, text_of(answer)
        assert "Behind, messages 11" in page_with(browser, f"/groups/{group}", "Behind, messages 11")
        with stream(browser, f"/topics/{topic}/tail?tags=*") as events:
            assert next(events)[0] == "open"

            async def send_until_seen() -> str:
                seen = asyncio.create_task(asyncio.to_thread(next, events))
                async with Producer(new_name("shop"), rocketmq.namesrv) as producer:
                    while not seen.done():
                        await producer.send(Message(topic, b"in the tail"))
                        await asyncio.wait([seen], timeout=0.2)
                return (await seen)[1]

            assert "in the tail" in asyncio.run(send_until_seen())
