"""What the doctor wants to know about who may connect to a broker.

Lives here: ``security_telemetry``.
"""

from collections.abc import Iterable

from pocketmq.auth.server_auth import ServerAuth
from pocketmq.common.addresses import is_loopback_host
from pocketmq.remoting.security.tls_files import TlsFiles
from pocketmq.remoting.telemetry import CertificateTelemetry, SecurityTelemetry


def security_telemetry(auth: ServerAuth, tls: TlsFiles, binds: Iterable[tuple[str, str]]) -> SecurityTelemetry:
    """Return it; ``binds``: setting and address of each listener. All of it is in memory; any thread."""
    config = auth.config
    is_checked = config.authentication_enabled
    return SecurityTelemetry(
        authentication=is_checked,
        authorization=config.authorization_enabled,
        tls_mode=tls.config.server_mode if tls.config.serves_tls else "disabled",
        open_binds=[] if is_checked else [f"{name}={each}" for name, each in binds if not is_loopback_host(each)],
        users=len(auth.table.contents.users),
        weak_secrets=dict(auth.weak_secrets()) if is_checked else {},
        auth_file_mode=auth.file_mode,
        certificates=[
            CertificateTelemetry(setting=setting, subject=facts.subject, not_after_ms=int(facts.not_after_s * 1000))
            for setting, facts in tls.in_force.items()
        ],
    )
