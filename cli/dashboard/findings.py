"""The doctor, as the dashboard takes it: the findings of all brokers of a cluster, with the rights of one user.

Lives here: ``findings_of``.
"""

from typing import Final

from pocketmq.cli.doctor.reader import BrokerReader
from pocketmq.cli.doctor.session import Session
from pocketmq.client.admin.admin import Admin
from pocketmq.dashboard.options import DoctorFinding
from pocketmq.remoting.security.credentials import Credentials

TIMEOUT_MS: Final = 2_000


async def findings_of(admin: Admin, credentials: Credentials | None) -> list[DoctorFinding]:
    """Check the brokers behind the name servers of ``admin``, over connections of its own: worst findings first.

    ``credentials``: those of ``admin``, which its instance has turned into the security of its connections.
    """
    async with BrokerReader(timeout_ms=TIMEOUT_MS, security=admin.instance.security) as reader:
        rounds = await Session(reader, await reader.targets(";".join(admin.instance.addresses))).check()
    found = [
        (finding.severity.rank, each.diagnosis.broker, finding)
        for each in rounds
        for finding in each.diagnosis.findings
    ]
    found.sort(key=lambda row: row[:2])
    return [
        DoctorFinding(broker, each.severity.value, each.title, each.evidence, each.cause, each.cure, each.reference)
        for _, broker, each in found
    ]
