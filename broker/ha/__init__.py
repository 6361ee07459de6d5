"""Replication of one broker in one run: its role, its epoch, and the tables that a slave copies beside the log.

    ha_roles        the role of this start: from the settings, or from a promotion or demotion
    ha_node         identity, promises and progress of this node
    members_claim, master_address   claims at the name servers; the last known address of a slave's master
    newer_master    whether this master was replaced while it was away
    replication     builds, opens and closes the parts of a run;  ha_environment   what they take from the broker
    slave_sync, slave_mirror   tables that a slave copies: topics, groups, offsets, progress of delayed messages
    ha_admin        requests about replication

The log itself is copied by ``store.ha``. Promotion across nodes is driven by ``client.admin.promotion``.
"""
