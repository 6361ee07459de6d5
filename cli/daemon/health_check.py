"""Asks the server of this machine whether it is well, for container engines and supervisors.

    python -m pocketmq.cli.daemon.health_check               # the broker's /health
    python -m pocketmq.cli.daemon.health_check --port 9876   # whether anything accepts connections there

Ends with 0 if it is well, else with 1 and the reasons. Imports the standard library only: it runs every few seconds.

Lives here: ``main``, ``reasons``.
"""

import http.client
import json
import os
import socket
import ssl
import sys
from collections.abc import Mapping, Sequence
from typing import Final

HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 5557
"""``metrics.listen_port`` of the daemons (a test holds them together)."""
PORT_VARIABLE: Final = "POCKETMQ_METRICS__LISTEN_PORT"
TIMEOUT_S: Final = 4.0
ANSWER_BYTES_MAX: Final = 1 << 20
USAGE: Final = "usage: python -m pocketmq.cli.daemon.health_check [--port PORT]"


def reasons(port: int) -> str:
    """Return why the broker with ``/health`` at ``port`` is not well; empty: it is.

    Where TLS is enforced the page is served over TLS only. Its certificate is not checked: this asks whether the
    process on this machine works, and tells it nothing.
    """
    try:
        return _ask(http.client.HTTPConnection(HOST, port, timeout=TIMEOUT_S))
    except (OSError, http.client.HTTPException) as error:
        plain = str(error) or type(error).__name__
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    try:
        return _ask(http.client.HTTPSConnection(HOST, port, timeout=TIMEOUT_S, context=unchecked))
    except (OSError, http.client.HTTPException):
        return f"no /health at {HOST}:{port}: {plain}"


def _ask(connection: http.client.HTTPConnection) -> str:
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX)
    finally:
        connection.close()
    if answer.status == http.client.OK:
        return ""
    try:
        told = json.loads(body)
        return ", ".join(map(str, told["reasons"])) or f"status {told['status']}"
    except (ValueError, KeyError, TypeError):
        return f"/health answered {answer.status}"


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Print what is wrong and return the exit code."""
    if arguments[:1] == ["--port"] and len(arguments) == 2 and arguments[1].isdecimal():
        try:
            socket.create_connection((HOST, int(arguments[1])), TIMEOUT_S).close()
            why = ""
        except (OSError, OverflowError) as error:
            why = f"nothing accepts connections at {HOST}:{arguments[1]}: {error}"
    elif arguments:
        why = USAGE
    else:
        why = reasons(int(environment.get(PORT_VARIABLE) or DEFAULT_PORT))
    if why:
        print(why)
    return int(bool(why))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
