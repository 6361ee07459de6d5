"""What the first answers on a channel say about credentials. Does no I/O.

A RocketMQ broker with access control checks each request before it looks at its code: it refuses HELLO, unless signed,
with code 1 (4.9: "No accessKey is configured") or 16 (5.3: "username cannot be null."). PocketMQ's servers answer
HELLO to anyone; an announcement with a nonce wants a proof (``remoting/security/proof.py``).

Lives here: ``refusal_of``, ``explain_refusal``, ``signed_fields``, ``Introduction``, ``GIVE_CREDENTIALS``.
"""

import re
from collections.abc import Mapping
from typing import Final

from pocketmq.common.errors import Cause, Stored
from pocketmq.remoting.codec import Body, Response
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import AuthenticationFailed, ConnectFailed
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader, AuthenticateResponseHeader
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.security.credentials import Credentials
from pocketmq.remoting.security.proof import client_proof, is_proof, new_nonce, server_proof
from pocketmq.remoting.security.signature import UNIQUE_KEY_QUERY, sign
from pocketmq.remoting.string_map import WRITERS

GIVE_CREDENTIALS: Final = "give credentials=Credentials(access_key, secret_key), or --access-key and --secret-key-file"
_CHECK_KEYS: Final = "check access key and secret key; does the server know this user, and is it enabled?"
_ACL_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException:"
_ACL_OF_4_9: Final = re.compile(r"AclException|accessKey|acl config|signature", re.IGNORECASE)


def refusal_of(answer: Response, address: str, credentials: Credentials | None) -> AuthenticationFailed | None:
    """Return the error if a server refused the first request for want of credentials, or for wrong ones."""
    by_4_9 = answer.code == ResponseCode.SYSTEM_ERROR and _ACL_OF_4_9.search(answer.remark)
    if answer.code != ResponseCode.NO_PERMISSION and not by_4_9:
        return None
    why = f"it answered {answer.code} {answer.remark}".rstrip()
    if credentials is None:
        return AuthenticationFailed(f"{address} wants credentials", why=why, hint=GIVE_CREDENTIALS)
    return AuthenticationFailed(
        f"{address} refused the credentials of {credentials.access_key}", why=why, hint=_CHECK_KEYS
    )


def explain_refusal(answer: Response, unproven: bool) -> None:
    """Add what a refusal does not say. ``unproven``: the server wants a proof, and the client has no credentials.

    4.9 refuses a permission with code 1, which also stands for anything else that went wrong, before it looks at the
    request: nothing is stored.
    """
    if answer.code == ResponseCode.NO_PERMISSION and unproven:
        answer.remark = f"{answer.remark} ({GIVE_CREDENTIALS})"
    elif answer.code == ResponseCode.SYSTEM_ERROR and answer.remark.startswith(_ACL_EXCEPTION):
        answer.extra = {**answer.extra, "cause": Cause.NO_PERMISSION.value, "stored": Stored.NO.value}


def signed_fields(
    credentials: Credentials, header: Header | None, body: Body, extra: Mapping[str, str] | None
) -> dict[str, str]:
    """Return all ext fields of a request to RocketMQ, its signature among them.

    ``_UNIQUE_KEY_QUERY`` is left out: RocketMQ's versions disagree on whether the signature covers it, and without it
    a query only has no upper limit of its own.
    """
    fields = WRITERS[type(header)](header) if header is not None else {}
    if extra:
        fields.update(extra)
    fields.pop(UNIQUE_KEY_QUERY, None)
    fields.update(sign(credentials, fields, body))
    return fields


class Introduction:
    """One exchange of proofs: ``request`` goes to the server, ``judge`` takes its answer."""

    def __init__(self, address: str, credentials: Credentials, server_nonce: str) -> None:
        user, nonce = credentials.access_key, new_nonce()
        self._address = address
        self._user = user
        self._expected = server_proof(credentials.secret_key, user, server_nonce, nonce)
        proof = client_proof(credentials.secret_key, user, server_nonce, nonce)
        self.request = AuthenticateRequestHeader(user=user, nonce=nonce, proof=proof)

    def judge(self, answer: Response) -> AuthenticationFailed | None:
        """Return the error if the server refused the proof, or did not give its own. Constant time.

        Raise ``ConnectFailed`` if it judged nothing: it is busy, or stops.
        """
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION):
            raise ConnectFailed(f"{self._address} takes no proof now", why=f"it answered {answer.code} {answer.remark}")
        if answer.code != ResponseCode.SUCCESS:
            return AuthenticationFailed(
                f"{self._address} refused the credentials of {self._user}",
                why=f"it answered {answer.code} {answer.remark}".rstrip(),
                hint=_CHECK_KEYS,
            )
        header = answer.header
        if (
            isinstance(header, AuthenticateResponseHeader)
            and header.user == self._user
            and is_proof(header.proof, self._expected)
        ):
            return None
        return AuthenticationFailed(
            f"{self._address} is not trusted",
            why=f"it could not prove that it knows the secret key of {self._user}",
            hint="is the address right? somebody may answer in the server's place",
        )
