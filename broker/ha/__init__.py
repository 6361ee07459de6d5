"""Replication of one broker in one run: its role, its epoch, and what a slave copies beside the log.

    ha_roles        the role of this start: from the settings, or from a promotion or demotion
    ha_node         identity, promises and progress of this node
    members_claim, master_address   claims at the name servers; where a slave found its master last
    replication     builds, opens and closes the parts of a run
    slave_sync, slave_mirror   what a slave takes from its master: topics, groups, offsets, delay progress
    ha_admin        requests about replication

The log itself is copied by ``store.ha``. Promotion across nodes is driven by ``client.admin.promotion``.
"""
