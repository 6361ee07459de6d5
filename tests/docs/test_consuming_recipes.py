"""The recipe of docs/consuming.md for a web application, run as a test client runs it."""

import asyncio
import re
import sys
import types
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import Message, Producer
from pocketmq.testing.broker import PocketBroker

PAGE = Path(__file__).parents[2] / "docs" / "consuming.md"


class App:
    """Stands for ``FastAPI``: keeps the life span that it is given."""

    def __init__(self, lifespan: Any) -> None:
        self.lifespan = lifespan


def test_the_lifespan_recipe_lives_twice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each test client starts the application of the module once more, in an event loop of its own."""
    (block,) = [text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "lifespan" in text]
    module = types.ModuleType("fastapi")
    module.FastAPI = App  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fastapi", module)
    with PocketBroker() as broker:
        names: dict[str, Any] = {}
        exec(block.replace("127.0.0.1:9876", broker.namesrv), names)
        app = names["app"]
        seen: list[str] = []

        async def live(body: bytes) -> None:
            lifespan: AbstractAsyncContextManager[None] = app.lifespan(app)
            async with lifespan, asyncio.timeout(60), Producer("recipe", broker.namesrv) as producer:
                await producer.send(Message("Orders", body))
                while str(body) not in "".join(seen):
                    await asyncio.sleep(0.005)
                    seen.append(capsys.readouterr().out)

        asyncio.run(live(b"first"))
        asyncio.run(live(b"second"))
