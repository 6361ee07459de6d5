"""Name servers of a query: what can never work is refused before anything waits for it."""

import socket
from typing import Any

import pytest

from pocketmq.pipeline.errors import OptionIllegal
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.servers import check_hosts, namesrv_of
from pocketmq.pipeline.source.planner import Planner


def options(namesrv: str) -> Options:
    return Options({"namesrv": namesrv}, ("namesrv",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a:9876,b:9876", "separate servers by a semicolon"),
        ("a", "is no host:port"),
        ("http://a:9876", "write host:port"),
        ("a:0", "host:port"),
        (" ", "option missing"),
    ],
)
def test_text_that_is_no_list_of_servers_is_refused(text: str, words: str) -> None:
    """The list of Kafka's users, too, whose addresses a comma separates."""
    with pytest.raises(OptionIllegal, match=words):
        namesrv_of(options(text))


@pytest.mark.parametrize("text", ["a:9876", "a:9876;b_c.d:1", "10.0.0.1:9876", "[::1]:9876;x:2"])
def test_lists_of_servers_pass(text: str) -> None:
    assert namesrv_of(options(text)) == text


def test_a_host_that_dns_does_not_know_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner raises at once. One known host is enough, and a DNS that does not answer is no verdict."""
    answers: dict[str, int | None] = {"wrong": socket.EAI_NONAME, "later": socket.EAI_AGAIN, "here": None}

    def ask(host: str, *_: Any, **__: Any) -> list[Any]:
        code = answers[host]
        if code is not None:
            raise socket.gaierror(code, "as DNS says")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    with pytest.raises(OptionIllegal, match="DNS knows no wrong"):
        check_hosts("wrong:9876")
    check_hosts("wrong:9876;here:9876")
    check_hosts("later:9876")
    planner = Planner("wrong:9876", "g", 3_600_000)
    try:
        with pytest.raises(OptionIllegal, match="DNS knows no wrong"):
            planner.queues(["t"])
    finally:
        planner.close()
