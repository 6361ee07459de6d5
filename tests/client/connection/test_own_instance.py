"""``credentials=`` and ``tls=`` of every public class."""

import inspect
from typing import Any

import pytest

import pocketmq.client
from pocketmq.client import TLS, Admin, ClientInstance, ConfigError, Credentials, PullConsumer, blocking
from pocketmq.client.blocking_transaction import TransactionProducer
from pocketmq.remoting.security.client_security import NO_SECURITY

ALICE = Credentials("alice", "hidden")
ADDRESS = "127.0.0.1:9876"
PUBLIC: list[Any] = [
    value for name in pocketmq.client.__all__ if inspect.isclass(value := getattr(pocketmq.client, name))
]
CONNECTING = [kind for kind in PUBLIC if "namesrv" in inspect.signature(kind).parameters]
FACES = [
    blocking.Producer,
    blocking.PullConsumer,
    blocking.PushConsumer,
    blocking.SimpleConsumer,
    TransactionProducer,
]


def made(kind: Any, **arguments: Any) -> ClientInstance:
    """Return the instance of an object of ``kind``."""
    needed = inspect.signature(kind).parameters
    given = {"group": "g", "topic": "t", "namesrv": ADDRESS, "check": print}
    value = kind(**{name: each for name, each in given.items() if name in needed}, **arguments)
    if isinstance(value, ClientInstance):
        return value
    inner = getattr(value, "_inner", value)
    instance: ClientInstance = inner.instance
    return instance


def test_the_classes_that_connect_are_known() -> None:
    assert {kind.__name__ for kind in CONNECTING} == {
        "Admin",
        "ClientInstance",
        "Producer",
        "PullConsumer",
        "PushConsumer",
        "SimpleConsumer",
        "StagedTransactions",
        "TransactionProducer",
    }


@pytest.mark.parametrize("kind", [*CONNECTING, *FACES])
def test_every_class_takes_credentials_and_tls(kind: Any) -> None:
    assert made(kind).security is NO_SECURITY
    security = made(kind, credentials=ALICE, tls=TLS(verify=False, server_hostname="mq")).security
    assert security.credentials is ALICE
    assert security.context is not None
    assert security.server_hostname == "mq"
    with pytest.raises(ConfigError, match="credentials is tuple"):
        made(kind, credentials=("alice", "secret"))


@pytest.mark.parametrize("wrong", [{"credentials": ALICE}, {"tls": True}])
def test_an_instance_has_its_own(wrong: Any) -> None:
    """One connection serves all users of an instance, so they cannot differ."""
    instance = ClientInstance(ADDRESS, credentials=ALICE)
    assert PullConsumer("g", instance=instance).instance.security.credentials is ALICE
    with pytest.raises(ConfigError, match="those of the instance"):
        Admin(instance=instance, **wrong)
