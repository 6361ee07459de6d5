"""The durable state of a node's replication, in ``<store>/pocketmq/ha.json``.

Lives here: ``HaState``: the epoch table, promises, the role set by a promotion, the fence, the followers, and their
file. The state is durable before any answer is based on it.

The file is JSON with its own CRC-32, replaced as a whole (``.tmp``, sync, rename, sync of the directory). The previous
content stays beside it as ``ha.json.bak``, for operators only: the node itself must never trust an older promise.
"""

import posixpath
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.common.clock import Clock
from pocketmq.common.epochs import EPOCH_PROMISED_MAX, next_members
from pocketmq.common.errors import DECODE_ERRORS, Cause
from pocketmq.common.hashes import crc32
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import CorruptStore, StoreError, StorePermission
from pocketmq.store.ha.epochs import OWNER_CHARS_MAX, Epoch, EpochTable

STATE_VERSION: Final = 1
SLAVES_MAX: Final = 64
"""Maximum number of remembered followers; the one furthest behind is forgotten first."""
NOTE_SLAVES_EVERY_NS: Final = 5_000_000_000
"""Acknowledged offsets are written at most this often, new followers at once: each write syncs beside the log's own
syncs, and only the text of an error depends on the offsets."""


_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class HaFenced(StoreError):
    """This node has promised a newer epoch to another one and must not lead."""

    default_cause = Cause.NOT_MASTER


class FencedBy(msgspec.Struct, frozen=True):
    """The node that replaced this master: its epoch, its owner name, and its address if known (else empty)."""

    epoch: int
    owner: str
    address: str = ""


class GroupRule(NamedTuple):
    """A master's condition for SEND_OK: its role, and how many copies of how many."""

    role: str
    in_sync_replicas: int
    total_replicas: int


class RememberedRole(NamedTuple):
    """The fields that ``set_role`` changes; see ``HaState``."""

    role: str
    broker_id: int
    fenced_by: FencedBy | None
    accept_loss: bool
    tables_due: bool


class _Content(msgspec.Struct, kw_only=True):
    version: int = STATE_VERSION
    node_id: str = ""
    epochs: list[Epoch] = []
    promised_epoch: int = 0
    promised_owner: str = ""
    role: str = ""
    broker_id: int = -1
    fenced_by: FencedBy | None = None
    slaves: dict[str, int] = {}
    confirmed_offset: int = 0
    acks_confirm: bool = False
    clean: bool = True
    cut_to: int = -1
    drop: bool = False
    accept_loss: bool = False
    boot_id: str = ""
    opened_epoch: int = 0
    rule: str = ""
    members_changed: bool = False
    counted: bool = True
    tables_due: bool = False
    group_role: str = ""
    group_in_sync: int = 0
    group_total: int = 0


class _File(msgspec.Struct):
    ha: msgspec.Raw
    crc32: int


class HaState:
    """The durable state of one node. Reads never block; changes write the file: not for the event loop.

    Thread-safe. A method that raises ``StoreError`` has changed nothing: a promise that could not be written was not
    made.
    """

    def __init__(
        self, file_system: FileSystem, paths: StorePaths, clock: Clock, random_bytes: Callable[[int], bytes]
    ) -> None:
        """Call ``load`` before anything else. ``random_bytes(count)`` makes ids (``os.urandom``)."""
        self.path = f"{paths.own}/ha.json"
        self._file_system = file_system
        self._own_directory = paths.own
        self._clock = clock
        self._random_bytes = random_bytes
        self._lock = threading.Lock()  # held over I/O
        self.present_boot_id = ""
        self._content = _Content()
        self._epochs = EpochTable()
        self._written = b""
        self._slaves_noted_ns = 0
        self.known_elsewhere = 0
        """The newest epoch of this broker name that a name server knows; not kept."""

    # ---- life

    def load(self) -> None:
        """Read the file, or make the state of a node that never replicated. May be called again.

        Raises ``CorruptStore`` when the file is unreadable, or gone although its backup exists: guessing could break a
        promise.
        """
        self.present_boot_id = _boot_id(self._file_system)
        with self._lock:
            try:
                data = self._file_system.read_all(self.path)
            except FileNotFoundError:
                if self._file_system.exists(f"{self.path}.bak"):
                    raise self._unreadable("it is missing, but its backup exists") from None
                self._make_directory()
                self._change(_Content(node_id=self._random_bytes(8).hex()))
                return
            try:
                outer = msgspec.json.decode(data, type=_File)
                if crc32(bytes(outer.ha)) != outer.crc32:
                    raise self._unreadable("its checksum does not match")
                content = msgspec.json.decode(outer.ha, type=_Content)
                self._epochs = EpochTable(content.epochs)
            except DECODE_ERRORS as error:
                raise self._unreadable(str(error)) from error
            if content.version != STATE_VERSION or not content.node_id:
                raise self._unreadable(f"version {content.version}")
            self._content = content
            self._written = data

    def _make_directory(self) -> None:
        """Make the store's directories, durably: when a directory's name is lost, so are its files."""
        files, own = self._file_system, self._own_directory
        files.make_dirs(own)
        root = posixpath.dirname(own)
        files.sync_dir(root)
        try:
            files.sync_dir(posixpath.dirname(root))
        except StorePermission:  # not readable for us: the creator of the store's directory had to sync it
            pass

    def _unreadable(self, why: str) -> CorruptStore:
        return CorruptStore(
            "the state of replication cannot be read",
            why=f"{self.path}: {why}",
            hint=f"if {self.path}.bak is newer than every promotion of this broker name, rename it to ha.json; else "
            "start as a slave with an empty store directory, so that no promise is broken",
        )

    # ---- reading the state

    @property
    def node_id(self) -> str:
        """A random id of this store, made once."""
        return self._content.node_id

    @property
    def epochs(self) -> EpochTable:
        """The epochs of the log. After a power loss some may start beyond the log's end: ``cut`` the table."""
        return self._epochs

    @property
    def promised_epoch(self) -> int:
        """The newest promised epoch: nothing is taken from, or confirmed to, lower ones."""
        return self._content.promised_epoch

    @property
    def promised_owner(self) -> str:
        """The owner of ``promised_epoch``; empty before the first promise."""
        return self._content.promised_owner

    @property
    def role(self) -> str:
        """The role set by a promotion or demotion, which overrides the config; empty: the config's role."""
        return self._content.role

    @property
    def broker_id(self) -> int:
        """The broker id that goes with ``role``; -1 without one."""
        return self._content.broker_id

    @property
    def fenced_by(self) -> FencedBy | None:
        """The node that replaced this master, or None."""
        return self._content.fenced_by

    @property
    def slaves(self) -> dict[str, int]:
        """{node id: last acknowledged offset} of this master's followers; a copy."""
        return dict(self._content.slaves)

    @property
    def confirmed_offset(self) -> int:
        """Bytes below it must stay: a producer may have received SEND_OK for them. Never above the confirmed offset,
        but perhaps seconds old.
        """
        return self._content.confirmed_offset

    @property
    def acks_confirm(self) -> bool:
        """Whether this slave's own acknowledgements were enough for SEND_OK (synchronous master, two in-sync replicas):
        then its whole log counts as confirmed.
        """
        return self._content.acks_confirm

    @property
    def group(self) -> GroupRule | None:
        """The condition for SEND_OK of the master followed last; None before the first one.

        A promotion relies on it, because this node's own settings may differ.
        """
        content = self._content
        if not content.group_total:
            return None
        return GroupRule(content.group_role, content.group_in_sync, content.group_total)

    @property
    def counted(self) -> bool:
        """Whether the master followed last counts this slave; an uncounted slave must not be promoted."""
        return self._content.counted

    @property
    def clean(self) -> bool:
        """Whether the last run as a master ended with everything durable (or there was none)."""
        return self._content.clean

    @property
    def cut_to(self) -> int | None:
        """The offset to which the next opening of the store must cut the log; None: no cut."""
        return None if self._content.cut_to < 0 else self._content.cut_to

    @property
    def drop(self) -> bool:
        """Whether the next opening of the store must drop the whole log."""
        return self._content.drop

    @property
    def accept_loss(self) -> bool:
        """Whether an operator has agreed that this slave's next cut may remove confirmed messages."""
        return self._content.accept_loss

    @property
    def same_boot(self) -> bool:
        """Whether the machine has certainly not rebooted since the last run as a master: everything that run wrote is
        there, even if it was killed, because the page cache has it.
        """
        return self.present_boot_id != "" and self.present_boot_id == self._content.boot_id

    @property
    def highest_known(self) -> int:
        """The highest epoch that this node has heard of: in its log, promised, by which it was fenced, or from a name
        server."""
        content = self._content
        fenced = 0 if content.fenced_by is None else content.fenced_by.epoch
        known = (self._epochs.last_number, content.promised_epoch, fenced, self.known_elsewhere)
        return max((epoch for epoch in known if epoch <= EPOCH_PROMISED_MAX), default=0)

    def is_own(self, owner: str) -> bool:
        """Return whether an epoch's owner is a run of this node."""
        return owner.startswith(f"{self.node_id}.")

    def new_owner(self) -> str:
        """Return a new owner name for one run of this node."""
        return f"{self.node_id}.{self._random_bytes(4).hex()}"

    def may_follow(self, epoch: int, owner: str) -> bool:
        """Return whether the promises allow taking data from, and acknowledging to, ``owner`` in ``epoch``."""
        content = self._content
        return epoch > content.promised_epoch or (epoch == content.promised_epoch and owner == content.promised_owner)

    # ---- promises and epochs

    def promise(self, epoch: int, owner: str) -> bool:
        """Promise to take nothing from lower epochs, and from this one only if it is ``owner``'s; return whether the
        promise was made. Durable before True is returned. Repeating a promise returns True.

        A candidate starts by promising an epoch to itself (``is_own``): ``open_epoch`` will open exactly this epoch. A
        fence stands until the promotion is ordered (``set_role``): a candidate that too few others followed must not
        lead after its next start. Raises ``StoreError`` when the disk does; then nothing was promised.
        """
        if not (0 < epoch <= EPOCH_PROMISED_MAX and 0 < len(owner) <= OWNER_CHARS_MAX):
            return False
        with self._lock:
            if not self.may_follow(epoch, owner):
                return False
            self._change(self._changed(promised_epoch=epoch, promised_owner=owner))
            return True

    def fence(self, epoch: int, owner: str, address: str = "") -> bool:
        """Promise ``epoch`` to the node that replaces this master, and record that node; return whether the epoch is
        newer than the last promise (if not, nothing changes). Durable before True is returned.
        """
        if not (0 < epoch <= EPOCH_PROMISED_MAX and 0 < len(owner) <= OWNER_CHARS_MAX) or self.is_own(owner):
            return False
        with self._lock:
            if not self.may_follow(epoch, owner):
                return False
            fenced_by = FencedBy(epoch, owner, address)
            self._change(self._changed(promised_epoch=epoch, promised_owner=owner, fenced_by=fenced_by))
            return True

    def needs_new_members(self, rule: str, count_max: int) -> bool:
        """Return whether a master must now open its epoch with a new set of counted slaves.

        ``rule``: how many copies of how many SEND_OK takes. A slave counted under another rule, or one of more than
        ``count_max``, may lack messages that the others have confirmed.
        """
        content = self._content
        return content.members_changed or bool(
            content.slaves and (content.rule != rule or len(content.slaves) > count_max)
        )

    def _check_leads(self) -> None:
        content = self._content
        if content.fenced_by is not None or (content.promised_owner and not self.is_own(content.promised_owner)):
            raise HaFenced(
                "this node must not lead",
                why=f"it has promised epoch {content.promised_epoch} to {content.promised_owner}",
                hint="start it as a slave, or promote it with: pocketmq ha promote",
            )

    def open_epoch(self, start_offset: int, *, rule: str = "", count_max: int = SLAVES_MAX) -> Epoch:
        """Open this run's epoch at ``start_offset``, the end of the log, and promise it to ourselves.

        The epoch that this node was promoted to, if not yet opened; else the next number with a new owner; if
        ``needs_new_members``, the next one with a new set of counted slaves, for which all below ``start_offset`` must
        be durable. From now on ``clean`` is false until ``mark_clean``. Durable when it returns. Raises ``HaFenced``
        when the newest promise is another node's, and ``StoreError``.
        """
        with self._lock:
            content = self._content
            self._check_leads()
            table = self._epochs.cut(start_offset)
            number, owner = content.promised_epoch, content.promised_owner
            highest = max(self._epochs.last_number, content.opened_epoch)
            is_new = self.needs_new_members(rule, count_max)
            if number <= highest:  # opened before: one number must never stand for two places in the log
                number, owner = next_members(highest) if is_new else highest + 1, self.new_owner()
            epoch = Epoch(number, owner, start_offset)
            confirmed = content.confirmed_offset
            if content.acks_confirm:
                confirmed = max(confirmed, start_offset)
            self._set_epochs(
                table.opened(epoch),
                promised_epoch=number,
                promised_owner=owner,
                acks_confirm=False,
                confirmed_offset=confirmed,
                clean=False,
                boot_id=self.present_boot_id,
                opened_epoch=number,
                rule=rule,
                members_changed=False,
                counted=True,
                slaves={} if len(content.slaves) > count_max else content.slaves,
            )
            return epoch

    def reserve_members(self) -> tuple[int, str]:
        """Return number and owner for an epoch with a new set of counted slaves; the number is never used again.
        Durable when it returns. Raises ``HaFenced`` and ``StoreError``.
        """
        with self._lock:
            content = self._content
            self._check_leads()
            number = next_members(max(self._epochs.last_number, content.opened_epoch, content.promised_epoch))
            self._change(self._changed(opened_epoch=number))
            return number, self.new_owner()

    def open_members(self, number: int, owner: str, start_offset: int, slaves: dict[str, int]) -> Epoch:
        """Open the epoch of ``reserve_members``, in which only ``slaves`` {node id: offset} are counted.

        All below ``start_offset`` must be durable, and no slave may have bytes beyond it: followers must adopt the
        epoch together with its bytes. Durable when it returns. Raises ``HaFenced`` and ``StoreError``.
        """
        with self._lock:
            self._check_leads()
            epoch = Epoch(number, owner, start_offset)
            self._set_epochs(
                self._epochs.opened(epoch), promised_epoch=number, promised_owner=owner, slaves=dict(slaves)
            )
            return epoch

    def is_reserved(self, epoch: int, owner: str) -> bool:
        """Return whether ``epoch`` is in the log's table, or reserved by this node and not yet opened."""
        if any((entry.number, entry.owner) == (epoch, owner) for entry in self._epochs.entries):
            return True
        return self.is_own(owner) and self._epochs.last_number < epoch <= self._content.opened_epoch

    def set_epochs(self, epochs: EpochTable) -> None:
        """Adopt the master's table, as far as this log reaches. Durable when it returns.

        Call it before bytes of a new epoch are appended, and after a cut.
        """
        with self._lock:
            if epochs != self._epochs:
                self._set_epochs(epochs)

    def follow(
        self, epoch: int, owner: str, *, acks_confirm: bool, group: GroupRule | None = None, counted: bool = True
    ) -> bool:
        """Promise a master its epoch and record whether our acknowledgements alone confirm, or do not count at all, and
        its ``group`` rule; return False as ``promise`` does.

        Forgets the followers that this node had as a master: from now on its log is another node's.
        """
        if not (0 < epoch <= EPOCH_PROMISED_MAX and 0 < len(owner) <= OWNER_CHARS_MAX):
            return False
        with self._lock:
            if not self.may_follow(epoch, owner):
                return False
            changed = self._changed(
                promised_epoch=epoch,
                promised_owner=owner,
                acks_confirm=acks_confirm,
                counted=counted,
                clean=True,
                slaves={},
            )
            if group is not None:
                changed.group_role, changed.group_in_sync, changed.group_total = group
            self._change(changed)
            return True

    # ---- role, followers, cuts

    def set_role(self, role: str, broker_id: int) -> None:
        """Record the role set by a promotion or demotion; empty removes the override.

        This ends the fence of a slave, which follows, and of a master that has promised itself the newest epoch: it was
        promoted. Durable when it returns.
        """
        with self._lock:
            may_act = role == "SLAVE" or (role != "" and self.is_own(self._content.promised_owner))
            fenced_by = None if may_act else self._content.fenced_by
            self._change(
                self._changed(
                    role=role,
                    broker_id=broker_id if role else -1,
                    fenced_by=fenced_by,
                    tables_due=role not in ("", "SLAVE"),
                )
            )

    @property
    def tables_due(self) -> bool:
        """Whether a promoted master has yet to check its tables against its log."""
        return self._content.tables_due

    def tables_done(self) -> None:
        """Record that the tables were corrected and written. Durable when it returns."""
        with self._lock:
            self._change(self._changed(tables_due=False))

    @property
    def remembered_role(self) -> RememberedRole:
        """The values with which ``take_back`` undoes a ``set_role``."""
        content = self._content
        return RememberedRole(
            content.role, content.broker_id, content.fenced_by, content.accept_loss, content.tables_due
        )

    def take_back(self, before: RememberedRole) -> None:
        """Undo ``set_role`` and ``order_accept_loss`` when the role could not be taken. Promises stand. Call ``load``
        first when another run has used the file. Durable when it returns.
        """
        with self._lock:
            self._change(self._changed(**before._asdict()))

    def note_slaves(self, acks: dict[str, int]) -> None:
        """Record the followers and their acknowledged offsets; followers that left keep their last offset.

        New followers are durable when it returns; offsets alone are written every few seconds.
        """
        with self._lock:
            merged = self._content.slaves | acks
            is_new = len(merged) != len(self._content.slaves)
            if len(merged) > SLAVES_MAX:
                furthest = sorted(merged.items(), key=lambda item: (item[0] in acks, item[1]))[-SLAVES_MAX:]
                merged = dict(furthest)
            now_ns = self._clock.monotonic_ns()
            if is_new or (merged != self._content.slaves and now_ns - self._slaves_noted_ns >= NOTE_SLAVES_EVERY_NS):
                self._slaves_noted_ns = now_ns
                self._change(self._changed(slaves=merged))

    def note_acks(self, acks: dict[str, int]) -> None:
        """Do ``note_slaves`` for the known followers in ``acks``."""
        known = self._content.slaves
        self.note_slaves({node: offset for node, offset in acks.items() if node in known})

    def forget_slaves(self, keep: set[str]) -> None:
        """Forget followers other than ``keep``: the next start fetches nothing from them and does not wait for them.

        The next epoch has a new set of counted slaves: others may take the free places.
        """
        with self._lock:
            slaves = {node: offset for node, offset in self._content.slaves.items() if node in keep}
            if slaves != self._content.slaves:
                self._change(self._changed(slaves=slaves, members_changed=True))

    def note_confirmed(self, offset: int) -> None:
        """Record the confirmed offset; call it about once a second, and at the end. A lower offset changes nothing."""
        with self._lock:
            if offset > self._content.confirmed_offset:
                self._change(self._changed(confirmed_offset=offset))

    def order_cut(self, offset: int) -> None:
        """Order the next opening of the store to cut the log to ``offset`` (``opening``). Durable when it returns."""
        with self._lock:
            self._change(self._changed(cut_to=offset))

    def order_drop(self) -> None:
        """Order the next opening of the store to drop the whole log. Durable when it returns."""
        with self._lock:
            self._change(self._changed(drop=True))

    def order_accept_loss(self) -> None:
        """Let the next cut, and only that one, remove confirmed messages. Durable when it returns."""
        with self._lock:
            self._change(self._changed(accept_loss=True))

    def cut_done(self, end_offset: int) -> None:
        """Record that the ordered cut was made: the log and its epochs end at ``end_offset``."""
        with self._lock:
            epochs = self._epochs.cut(end_offset)
            if self._content.drop:
                epochs = EpochTable()
            confirmed = min(self._content.confirmed_offset, end_offset)
            self._set_epochs(
                epochs, cut_to=-1, drop=False, accept_loss=False, acks_confirm=False, confirmed_offset=confirmed
            )

    def check_writable(self) -> None:
        """Write the file as it is. Raises ``StoreError`` when the disk refuses."""
        with self._lock:
            self._file_system.replace(self.path, self._written)

    def mark_clean(self) -> None:
        """Record that this run as a master ended with everything durable."""
        with self._lock:
            self._change(self._changed(clean=True))

    # ---- the file

    def _changed(self, **changes: Any) -> _Content:
        return msgspec.structs.replace(self._content, **changes)

    def _set_epochs(self, epochs: EpochTable, **changes: Any) -> None:
        self._change(self._changed(epochs=list(epochs.entries), **changes))
        self._epochs = epochs

    def _change(self, content: _Content) -> None:
        """Make ``content`` durable, then current. After a disk error the old state stays in force."""
        inner = msgspec.json.encode(content)
        data = b'{"ha":%b,"crc32":%d}\n' % (inner, crc32(inner))
        if data != self._written:
            if self._written:
                self._file_system.replace(f"{self.path}.bak", self._written, durable=False)
            self._file_system.replace(self.path, data)
            self._written = data
        self._content = content


def _boot_id(file_system: FileSystem) -> str:
    """Return the id of this boot of the machine; empty where the system has none."""
    try:
        file = file_system.open(_BOOT_ID, writable=False)
        try:
            return file.read(0, 64).decode("ascii", "replace").strip()
        finally:
            file.close()
    except (OSError, StoreError):
        return ""
