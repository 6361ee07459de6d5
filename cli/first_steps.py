"""What ``pocketmq`` alone says: how to start.

Lives here: ``FIRST_STEPS``. Each command of it runs in ``tests/cli/test_first_steps.py``.
"""

from typing import Final

FIRST_STEPS: Final = """\
A durable, ordered message broker in pure Python with RocketMQ's semantics.

  pocketmq standalone                    name server and broker, until Ctrl-C

In a second terminal:

  pocketmq produce Orders -m "order 1"   send a message
  pocketmq consume Orders -n 1           read one, from the beginning
  pocketmq topic describe Orders         where its messages are
  pocketmq doctor                        what is wrong, if something is

  pocketmq --help                        all commands; each has --help"""
