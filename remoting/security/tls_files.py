"""A server's certificates: read at the start, looked at again while it runs.

    tls = TlsFiles(config, clock, log);  tls.load();  tls.start(runner);  tls.server;  ...;  tls.stop()

Lives here: ``TlsFiles``.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pocketmq.common.clock import Clock
from pocketmq.common.errors import ConfigError
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker
from pocketmq.remoting.security.certificates import CertificateFacts, read_certificate
from pocketmq.remoting.security.client_security import NO_SECURITY, TLS, ClientSecurity
from pocketmq.remoting.security.tls_config import TlsConfig

WARN_DAYS: Final = (30, 7, 1, 0)
"""Days before its end when a certificate is warned of; 0: it has ended."""
KEY_BYTES_MAX: Final = 1 << 16
_VERIFY: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file as it was last seen; one that cannot be looked at has zeros."""

    path: str
    modified_ns: int = 0
    size_bytes: int = 0
    inode: int = 0


class TlsFiles:
    """The contexts made from the files of ``[tls]``. Any thread may read ``server``, ``http`` and ``links``.

    ``server``: for connections that are accepted; a changed file replaces it. ``http``: the same without client
    certificates. Both are None where the listeners are plain. ``links``: for connections that this server opens; its
    context stays the same object and takes a changed certificate, and further CAs, in place: a CA that leaves the file
    is trusted until the server starts again.
    """

    def __init__(self, config: TlsConfig, clock: Clock, log: EventLog) -> None:
        self.config = config
        self.server: ssl.SSLContext | None = None
        self.http: ssl.SSLContext | None = None
        self.links: ClientSecurity = NO_SECURITY
        self.in_force: Mapping[str, CertificateFacts] = {}
        """Setting of a certificate's file → what the certificate says that is used now."""
        self.reloads = 0
        """Changes of the files that were taken."""
        self._clock = clock
        self._log = log
        self._seen: tuple[_Seen, ...] = ()
        self._warned: dict[str, int] = {}
        """Certificate file of the settings → the days of the last warning."""
        self._worker: Worker | None = None

    def load(self) -> None:
        """Read the files. Blocks for a moment. Raise ``ConfigError``."""
        self._seen = self._look()
        self._take(self._seen)
        self._warn_of_ends()

    def open(self) -> None:
        """Do nothing: the files are loaded before a port is open."""

    def start(self, runner: Runner) -> None:
        """Look at the files every ``reload_interval``, if there are any."""
        if self.files:
            interval_ms = self.config.reload_interval
            self._worker = runner.start("TlsFiles", self.step, first_after_ms=interval_ms)

    def stop(self) -> None:
        """Look no more."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()

    def step(self) -> float:
        """Take changed files; keep the old ones if the new ones cannot be used, and say so once. Worker thread."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            try:
                self._take(seen)
            except ConfigError as error:
                self._log.error("tls_files_not_taken", why=str(error), consequence="the former ones stay in force")
            else:
                self.reloads += 1
                self._warned.clear()
                self._log.info("tls_files_taken", files=" ".join(each.path for each in seen))
        self._warn_of_ends()
        return self.config.reload_interval

    @property
    def files(self) -> list[str]:
        """The files of the settings that are used; none: there is nothing to load."""
        config = self.config
        paths: list[str] = []
        if config.serves_tls:
            paths += [config.server_cert_path, config.server_key_path, config.server_trust_cert_path]
        if config.enable:
            paths += [config.client_trust_cert_path, config.client_cert_path, config.client_key_path]
        return [path for path in dict.fromkeys(paths) if path]

    def _look(self) -> tuple[_Seen, ...]:
        found = []
        for path in self.files:
            try:
                stat = Path(path).stat()
                found.append(_Seen(path, stat.st_mtime_ns, stat.st_size, stat.st_ino))
            except OSError:
                found.append(_Seen(path))
        return tuple(found)

    def _take(self, seen: tuple[_Seen, ...]) -> None:
        """Make new contexts; nothing changes unless all can be made."""
        config = self.config
        facts = {}
        if config.serves_tls:
            facts["tls.server_cert_path"] = self._check("server", config.server_cert_path)
        if config.enable and config.client_cert_path:
            facts["tls.client_cert_path"] = self._check("client", config.client_cert_path)
        server = self._server_context(config.server_need_client_auth) if config.serves_tls else None
        if server is not None:
            server.set_alpn_protocols(["h2"])  # gRPC clients insist on it; RocketMQ's others do not ask
        http = self._server_context("none") if config.serves_tls else None
        links = self._links() if config.enable else NO_SECURITY
        if self._look() != seen:  # a certificate of before and a key of after: the next step sees them whole
            self._seen = ()
        self.server, self.http = server, http
        self.in_force = facts
        if server is not None:
            self._warn_of_mode(config.server_key_path or config.server_cert_path)
        if config.enable and config.client_cert_path:
            self._warn_of_mode(config.client_key_path or config.client_cert_path)
        if self.links.context is None:
            self.links = links
        elif config.client_cert_path or config.client_trust_cert_path:
            context = self.links.context
            if config.client_cert_path:
                context.load_cert_chain(
                    config.client_cert_path, config.client_key_path or None, lambda: config.client_key_password
                )
            if config.client_auth_server and config.client_trust_cert_path:
                context.load_verify_locations(config.client_trust_cert_path)

    def _server_context(self, client_auth: str) -> ssl.SSLContext:
        config = self.config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A connection lives long: tickets would never be used, and a renegotiation is a handshake that no limit counts.
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        context.num_tickets = 0
        key_path = config.server_key_path or config.server_cert_path
        try:
            # without a password OpenSSL would ask for it at the terminal
            context.load_cert_chain(config.server_cert_path, key_path, lambda: config.server_key_password)
        except OSError as error:  # SSLError is one
            raise _not_loaded("server", config.server_cert_path, key_path, error) from error
        context.verify_mode = _VERIFY[client_auth]
        if client_auth != "none":
            try:
                context.load_verify_locations(config.server_trust_cert_path)
            except OSError as error:
                why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
                raise ConfigError(
                    "TLS not started",
                    why=f"tls.server_trust_cert_path: {config.server_trust_cert_path}: {why or error}",
                    hint="name a PEM file with the CA that signs the clients' certificates",
                ) from error
        return context

    def _links(self) -> ClientSecurity:
        config = self.config
        context = TLS(
            ca=config.client_trust_cert_path if config.client_auth_server else "",
            cert=config.client_cert_path,
            key=config.client_key_path,
            key_password=config.client_key_password,
            verify=config.client_auth_server,
        ).context()
        return ClientSecurity(context=context, server_hostname=config.client_server_name)

    def _check(self, side: str, path: str) -> CertificateFacts:
        try:
            facts = read_certificate(path)
        except ConfigError as error:
            raise ConfigError("TLS not started", why=f"tls.{side}_cert_path: {error.why}", hint=error.hint) from error
        now_s = self._clock.now_ms() / 1000
        if now_s > facts.not_after_s:
            days = -facts.days_left(now_s)
            raise ConfigError(
                "TLS not started",
                why=f"tls.{side}_cert_path: {path} ended {days} days ago ({facts.subject})",
                hint="have a new certificate signed; clients refuse this one",
            )
        if now_s < facts.not_before_s:
            raise ConfigError(
                "TLS not started",
                why=f"tls.{side}_cert_path: {path} is not valid yet ({facts.subject})",
                hint="is the clock of this machine right?",
            )
        return facts

    def _warn_of_mode(self, path: str) -> None:
        try:
            mode = Path(path).stat().st_mode
        except OSError:
            return
        if mode & 0o077:
            self._log.warning(
                "key_file_readable_by_others", file=path, mode=f"{mode & 0o777:04o}", hint=f"chmod 600 {path}"
            )

    def _warn_of_ends(self) -> None:
        """Warn once at each of ``WARN_DAYS`` before a certificate ends. Blocks."""
        config = self.config
        paths = [config.server_cert_path] if config.serves_tls else []
        paths += [config.client_cert_path] if config.enable and config.client_cert_path else []
        for path in paths:
            try:
                facts = read_certificate(path)
            except ConfigError:  # ``step`` has said so
                continue
            left = facts.days_left(self._clock.now_ms() / 1000)
            reached = [days for days in WARN_DAYS if left < days]
            if reached and self._warned.get(path) != reached[-1]:
                self._warned[path] = reached[-1]
                self._log.warning("certificate_ends_soon", file=path, days_left=left, subject=facts.subject)


def _not_loaded(side: str, cert_path: str, key_path: str, error: OSError) -> ConfigError:
    where = f"tls.{side}_key_path: {key_path}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason
        if reason == "KEY_VALUES_MISMATCH":
            why, hint = f"{where} is not the key of {cert_path}", "name the files that belong together"
        elif _is_encrypted(key_path):
            why, hint = f"{where}: wrong password, or none", f"set tls.{side}_key_password"
        else:
            why = f"{where}: OpenSSL cannot use it: {reason or 'no certificate or no key in PEM'}"
            hint = "files in PEM; the certificate first, then those between it and its CA"
        return ConfigError("TLS not started", why=why, hint=hint)
    return ConfigError("TLS not started", why=f"{where}: {error.strerror or error}", hint="check path and permissions")


def _is_encrypted(key_path: str) -> bool:
    """Return whether a key file that could not be loaded wants a password."""
    try:
        with Path(key_path).open("rb") as file:
            return b"ENCRYPTED" in file.read(KEY_BYTES_MAX)
    except OSError:
        return False
