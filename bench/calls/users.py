"""The users of a broker that wants a user and a policy for each request.

Lives here: ``SENDER``, ``SETTINGS``, ``make_sender``.
"""

from typing import Final

from pocketmq.client import Credentials
from pocketmq.client.admin.access_admin import AccessAdmin
from pocketmq.client.admin.admin import Admin

ROOT: Final = Credentials("root", "secret-of-root")
SENDER: Final = Credentials("calls", "secret-of-calls")
"""A user whom policies restrict: nothing is looked up for a super user."""
SETTINGS: Final = f"""
[auth]
authentication_enabled = true
authorization_enabled = true
init_username = "{ROOT.access_key}"
init_password = "{ROOT.secret_key}"
inner_access_key = "inner"
inner_secret_key = "secret-of-inner"
"""


async def make_sender(namesrv: str) -> None:
    """Make the user of the clients, who may do what the loads do."""
    async with Admin(namesrv, credentials=ROOT) as admin:
        access = AccessAdmin(admin)
        await access.create_user(SENDER.access_key, SENDER.secret_key)
        await access.create_acl(SENDER.access_key, "Topic:Calls*", ["Pub", "Sub", "Create", "Get"])
        await access.create_acl(SENDER.access_key, "Group:calls*", ["Sub"])
        await access.create_acl(SENDER.access_key, "Cluster:*", ["Get"])
