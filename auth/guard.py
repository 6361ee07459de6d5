"""What a server asks before it serves a request: who sends this, and may that user do it?

    server.guard = AuthGuard(config, table, cluster="DefaultCluster", clock=clock, denials=denials)

Who: the user of the request's signature (RocketMQ's clients), else of the connection's proof (AUTHENTICATE), else of
its verified certificate, else nobody. What: each need of the request's code is decided by the user's policies
(``needed``, ``Session``). Whatever no rule allows is refused; a code without a row in the protocol too. The texts are
RocketMQ 5.3.3's.

Needs on stored messages remain for the processor that reads them: it finds the session in ``request.session`` and asks
``auth.stored``.

Lives here: ``AuthGuard``.
"""

from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from pocketmq.auth.auth_table import AuthTable
from pocketmq.auth.config import AuthConfig, codes_of
from pocketmq.auth.denials import Denials
from pocketmq.auth.errors import AccessDenied, CodeUnknown
from pocketmq.auth.needed import ALL_NAMES, needed
from pocketmq.auth.policies import Address
from pocketmq.auth.session import Remembered, Session
from pocketmq.auth.stored import OF_ALL_TOPICS, RECORDS, words_of
from pocketmq.auth.users import User, UserType
from pocketmq.common import refusals
from pocketmq.common.bounds import bounded
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.topics import TOPICS_OF_ALL
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.limits.quota import QuotaExceeded, TooManyWrong
from pocketmq.remoting.limits.server_limits import ServerLimits
from pocketmq.remoting.limits.user_limits import NO_LIMITS, UserLimits
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.access import FROM_BROKER, PULL, Action, Resource
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader, AuthenticateResponseHeader
from pocketmq.remoting.protocol.spec import Spec
from pocketmq.remoting.security.proof import client_proof, is_proof, new_nonce, server_proof
from pocketmq.remoting.security.signature import ACCESS_KEY, verify

SESSIONS_MAX: Final = 10_000
"""Pairs of user and address remembered; a full table starts again."""
FAILURES_MAX: Final = 50
"""Wrong proofs and signatures of one address in one second; more are refused unread and end their connections, and new
ones are closed at once. A connection whose user has signed well is served all the same."""
HOSTS_MAX: Final = 4_096
NS_PER_S: Final = 1_000_000_000
NONCE_CHARACTERS: Final = range(16, 65)
_LIKE_PULLS: Final = frozenset(int(code) for code, spec in PROTOCOL.items() if spec.access is PULL)
"""Pulls, pops and acknowledgements: requests with a topic and a group."""
_NATIVE_PULL: Final = int(RequestCode.NATIVE_PULL)
NO_SECRET: Final = "no such user: the time for an answer is the same"


@bounded("sessions", limit=SESSIONS_MAX, size="sessions", entry_bytes=2_000, when_full="evicts")
@bounded("failures by address", limit=HOSTS_MAX, size="failures", entry_bytes=300, when_full="evicts")
class AuthGuard:
    """The guard of one server. Loop thread only, unless a method says otherwise."""

    def __init__(
        self,
        config: AuthConfig,
        table: AuthTable,
        *,
        cluster: str,
        clock: Clock,
        denials: Denials,
        note: Callable[[Connection, Request, PocketMQError], None] | None = None,
    ) -> None:
        """``cluster``: the name of the server's cluster. ``note`` counts and logs a refusal, once a request."""
        self.config = config
        self.table = table
        self.denials = denials
        self._cluster = cluster
        self._clock = clock
        self._note = note
        self.limits: ServerLimits | None = None
        """Those of the server."""
        self._open = codes_of(config.authentication_whitelist)
        self._unchecked = codes_of(config.authorization_whitelist)
        self.sessions: dict[tuple[str, str, str], Session] = {}
        """User, host and how the user is known → session, perhaps an outdated one."""
        self.remembered = Remembered()
        self.failures: dict[str, tuple[int, int]] = {}
        """Host → second of its last failure, failures in it."""
        inner = config.inner
        self._inner = (
            None
            if inner is None
            else User(username=inner.access_key, password=inner.secret_key, user_type=UserType.SUPER)
        )

    # ---- proofs ----------------------------------------------------------------------------------------------------

    def nonce(self, connection: Connection) -> str:
        """See ``Guard``."""
        if not connection.nonce:
            connection.nonce = new_nonce()
        return connection.nonce

    def authenticate(
        self, connection: Connection, header: AuthenticateRequestHeader
    ) -> AuthenticateResponseHeader | PocketMQError:
        """See ``Guard``. A connection proves itself once."""
        if self._fails_too_often(connection):
            return self._too_many(connection, 0, header.user)
        user = self._user(header.user)
        nonce, connection.nonce = connection.nonce, ""  # a nonce is answered once
        secret = NO_SECRET if user is None else user.password
        proved = is_proof(header.proof, client_proof(secret, header.user, nonce, header.nonce))
        if user is None or not nonce or not proved or len(header.nonce) not in NONCE_CHARACTERS:
            return self._failed(connection, 0, header.user, "check signature failed.")
        if not user.is_enabled:
            return self._failed(connection, 0, header.user, f"User:{user.username} is disabled.")
        session = self._session(user, connection.host, "proof")
        over = self._over_limits(connection, session)
        if over is not None:
            return over
        connection.session = connection.speaker = session
        return AuthenticateResponseHeader(
            user.username, server_proof(user.password, user.username, nonce, header.nonce)
        )

    # ---- requests --------------------------------------------------------------------------------------------------

    def refusal(self, connection: Connection, request: Request) -> PocketMQError | None:
        """See ``Guard``. A pull like one that was let in before passes with a look-up: a consumer that waits for each
        message pulls as often as messages come."""
        session: Session | None = connection.session
        pull = None
        if (
            session is not None
            and session is connection.speaker
            and session.checks
            and session.generation == self.table.generation
            and request.signed is None
        ):
            pull = _pull(request)
            if pull is not None and pull in session.verdicts:
                request.session = session
                return None
        try:
            self._check(connection, request)
        except PocketMQError as error:
            if self._note is not None:
                self._note(connection, request, error)
            return error
        if pull is not None and session is not None and request.session is session:
            session.let_in(pull)
        return None

    def _check(self, connection: Connection, request: Request) -> None:
        spec = PROTOCOL.get(request.code)
        if spec is None or spec.access is FROM_BROKER:
            raise CodeUnknown(f" request type {request.code} not supported")
        if request.code in self._open:
            return
        session = self._sender(connection, request)
        if session is not connection.speaker:
            over = self._over_limits(connection, session)
            if over is not None:
                connection.session = None  # or its small sends would pass by here
                raise over
            connection.speaker = session
        request.session = session
        if not session.checks or request.code in self._unchecked:
            return
        self._check_needs(connection, request, spec, session)

    def _check_needs(self, connection: Connection, request: Request, spec: Spec, session: Session) -> None:
        for kind, name, actions in needed(request, spec, self._cluster):
            if not session.verdict(kind, name, actions).allowed:
                raise self.denied(session, connection.host, request.code, kind, name, actions)
            if kind is Resource.TOPIC and name in TOPICS_OF_ALL and spec.answer in RECORDS:
                host, user = connection.host, session.user.username
                self.denials.note("policy", user, host, request.code, f"Topic:{name}", "Sub", OF_ALL_TOPICS)
                raise AccessDenied(f"User:{user} has no permission to access Topic:{name} from {host}, {OF_ALL_TOPICS}")

    def _sender(self, connection: Connection, request: Request) -> Session:
        """Return the session of the request's user. Raise ``AccessDenied``."""
        session: Session | None = connection.session
        if request.signed is not None:
            return self._signed(connection, request)
        if session is None:
            session = connection.session = self._by_certificate(connection)
        if session is None:
            raise self._denied_user(connection, request.code, "", "username cannot be null.")
        if session.generation != self.table.generation:
            connection.session = None
            session = connection.session = self._renewed(connection, request, session)
        return session

    def _renewed(self, connection: Connection, request: Request, session: Session) -> Session:
        """Return the session of the same user under the present users and policies. Raise ``AccessDenied``."""
        user = self._user(session.user.username)
        why = ""
        if user is None:
            why = f"User:{session.user.username} is not found."
        elif not user.is_enabled:
            why = f"User:{user.username} is disabled."
        elif user.password != session.user.password:  # the proof was made with the old one
            why = f"User:{user.username} has another password now: connect again."
        if user is None or why:
            raise self._denied_user(connection, request.code, session.user.username, why)
        return self._session(user, connection.host, session.how)

    def refusal_again(self, connection: Connection, request: Request) -> PocketMQError | None:
        """Return why a request that was let in, and waits since, may not be served any more: users or policies have
        changed meanwhile. None: it may."""
        session: Session | None = request.session
        if session is None or session.generation == self.table.generation:
            return None
        try:
            session = request.session = self._renewed(connection, request, session)
            if session.checks and request.code not in self._unchecked:
                self._check_needs(connection, request, PROTOCOL[request.code], session)
        except PocketMQError as error:
            if self._note is not None:
                self._note(connection, request, error)
            return error
        return None

    def may_connect(self, name: str) -> bool:
        """Return whether there is such a user, and it is enabled. Any thread."""
        user = self._user(name)
        return user is not None and user.is_enabled

    def present(self, session: Session) -> Session | None:
        """Return the session of the same user and address under the present users and policies; None: that user may do
        nothing any more. Any thread."""
        generation = self.table.generation
        if session.generation == generation:
            return session
        user = self._user(session.user.username)
        if user is None or not user.is_enabled or user.password != session.user.password:
            return None
        contents, checks = self.table.contents, self.config.authorization_enabled
        return Session(user, session.source, contents, generation, checks=checks)

    def _by_certificate(self, connection: Connection) -> Session | None:
        """Return the session of the user that the connection's verified certificate names; None: it names none."""
        user = self._user(connection.peer_name) if connection.peer_name else None
        if user is None or not user.is_enabled:
            return None
        return self._session(user, connection.host, "certificate")

    def caller(self, connection: Connection, code: int, name: str, proves: Callable[[str], bool]) -> Session:
        """Return the session of a user whose call comes by another protocol: ``proves(password)`` says whether the call
        carries that user's signature. ``name`` empty: the certificate counts. Raise ``AccessDenied``."""
        if name:
            return self._proved(connection, code, name, proves)
        session = self._by_certificate(connection)
        if session is None:
            raise self._denied_user(connection, code, "", "username cannot be null.")
        return session

    def _signed(self, connection: Connection, request: Request) -> Session:
        signed, body = request.signed, request.body
        assert signed is not None
        name = signed.get(ACCESS_KEY, "")
        return self._proved(connection, request.code, name, lambda password: verify(password, signed, body))

    def _proved(self, connection: Connection, code: int, name: str, proves: Callable[[str], bool]) -> Session:
        speaker: Session | None = connection.speaker
        if (speaker is None or speaker.user.username != name) and self._fails_too_often(connection):
            raise self._too_many(connection, code, name)
        user = self._user(name)
        if user is None:
            proves(NO_SECRET)  # as long as for a user
            raise self._failed(connection, code, name, f"User:{name[:64]} is not found.")
        if not proves(user.password):
            raise self._failed(connection, code, name, "check signature failed.")
        if not user.is_enabled:
            raise self._failed(connection, code, name, f"User:{name} is disabled.")
        return self._session(user, connection.host, "signature")

    def _user(self, name: str) -> User | None:
        if self._inner is not None and name == self._inner.username:
            return self._inner
        return self.table.contents.users.get(name)

    def _session(self, user: User, host: str, how: str) -> Session:
        generation = self.table.generation
        session = self.sessions.get((user.username, host, how))
        if session is None or session.generation != generation or session.user != user:
            if len(self.sessions) >= SESSIONS_MAX:
                self.sessions.clear()
            session = Session(
                user,
                source_of(host),
                self.table.contents,
                generation,
                checks=self.config.authorization_enabled,
                limits=self._limits_of(user),
                denials=self.denials,
                remembered=self.remembered,
                how=how,
            )
            self.sessions[user.username, host, how] = session
        return session

    # ---- limits ----------------------------------------------------------------------------------------------------

    def _limits_of(self, user: User) -> UserLimits | None:
        """Return how much a user may do: what the settings say, unless the user is a super user, and what is said of
        this user; None: everything."""
        if user is self._inner or self.limits is None:
            return None
        limits = user.limits.over(NO_LIMITS if user.is_super else self.limits.of_users)
        return None if limits.is_empty else limits

    def _over_limits(self, connection: Connection, session: Session) -> QuotaExceeded | None:
        """Let a user's limits hold for a connection; return why it may not have this one."""
        if self.limits is None:
            return None
        return self.limits.speaks(connection, session.user.username, session.limits)

    # ---- refusals --------------------------------------------------------------------------------------------------

    def denied(
        self, session: Session, host: str, code: int, kind: Resource, name: str, actions: Action
    ) -> AccessDenied:
        """Note and return the refusal of something that policies do not allow."""
        resource = f"{kind.value}:{ALL_NAMES if name == ALL_NAMES else name[:255]}"
        why = session.verdict(kind, name, actions).why
        text = f"User:{session.user.username} has no permission to access {resource} from {host}, {why}"
        action = words_of(actions)
        self.denials.note("policy", session.user.username, host, code, resource, action, why)
        return AccessDenied(text)

    def _denied_user(self, connection: Connection, code: int, user: str, why: str) -> AccessDenied:
        self.denials.note("user", user, connection.host, code, "", "", why)
        hint = "" if user else "this server wants credentials: see docs/security.md"
        return AccessDenied(why, hint=hint)

    def _failed(self, connection: Connection, code: int, user: str, why: str) -> AccessDenied:
        """Count a wrong proof or signature against its address."""
        second = self._clock.monotonic_ns() // NS_PER_S
        last, count = self.failures.pop(connection.host, (second, 0))
        if len(self.failures) >= HOSTS_MAX:
            del self.failures[next(iter(self.failures))]
        count = count + 1 if last == second else 1
        self.failures[connection.host] = (second, count)
        if count >= FAILURES_MAX and self.limits is not None:
            self.limits.bar(connection.host, (second + 1) * NS_PER_S)
        return self._denied_user(connection, code, user, why)

    def _fails_too_often(self, connection: Connection) -> bool:
        last, count = self.failures.get(connection.host, (0, 0))
        return count >= FAILURES_MAX and last == self._clock.monotonic_ns() // NS_PER_S

    def _too_many(self, connection: Connection, code: int, user: str) -> TooManyWrong:
        """Return the refusal of a proof or a signature that nobody looks at; an honest client comes again."""
        rest_ms = 1000 - self._clock.monotonic_ns() // 1_000_000 % 1000
        text = refusals.QUOTA_LOGINS.template % (FAILURES_MAX, connection.host)
        error = TooManyWrong(text, retry_after_ms=rest_ms)
        self.denials.note("flood", user, connection.host, code, "", "", str(error))
        if self.limits is not None:
            self.limits.note("logins", error)
        return error


def source_of(host: str) -> Address | None:
    """Return the address that policies compare; an IPv4 peer of an IPv6 socket counts as IPv4. None: it is none."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _pull(request: Request) -> tuple[int, str, str] | None:
    """Return code, topic and group of a pull from one topic, or of a pop; None: it is another request."""
    code = request.code
    header: Any = request.header
    if code in _LIKE_PULLS:
        topic: str = header.topic
    elif code == _NATIVE_PULL and header.queues:
        topic = header.queues[0][0]
        for queue in header.queues:
            if queue[0] != topic:
                return None
    else:
        return None
    return code, topic, header.consumer_group
