"""Communicators under construction: assigns each line to its communicator, and detects contradictions.

Only the `Init` lines name a communicator. Any other line belongs to the communicator that its thread set up last, then
to that of its process and device (NCCL 2.22 and later connect from a separate thread), then to the newest one.
"""

from __future__ import annotations

import msgspec

from railwright.errors import UsageError
from railwright.results.readers.nccl_log import model
from railwright.results.readers.nccl_log.lines import Message
from railwright.results.readers.nccl_log.messages import MAX_RANKS, CommunicatorFact, Heads, Init, Nodes, Pxn, Step

_HINT = "give the log of a single run: two logs in one file, or lines torn within a number, cannot be separated"
MAX_COMMUNICATORS = 4096
_MAX_SEARCHED = 64
_PRINTED_RANKS = 20
"""The number of ranks of a ring that NCCL printed up to 2.22 (src/graph/rings.cc, MAXWIDTH)."""

_Owner = tuple[str, int, str, int]


class Draft:
    """A communicator while its lines are read."""

    def __init__(self, name: str, line: int) -> None:
        self.name = name
        self.line = line
        self.size = 0
        self.nodes: int | None = None
        self.ranks: dict[int, model.Rank] = {}
        self.orders: dict[int, model.Ring] = {}
        self.steps: dict[tuple[int, int], Step] = {}
        self.trees: dict[tuple[int, int], model.TreeNode] = {}
        self.heads: list[tuple[int, ...]] = []
        self.connections: list[model.Connection] = []
        self.searches: list[model.Search] = []
        self.counts: model.Counts | None = None
        self.pxn: bool | None = None
        self.is_ready = False
        """True once a rank is complete."""

    def set_size(self, size: int, line: int) -> None:
        """Set the number of ranks. Raises UsageError if an earlier line gave another number."""
        if not 0 < size <= MAX_RANKS or (self.size and self.size != size):
            claim = f"communicator {self.name or 'without a name'} has {size} ranks"
            raise UsageError(f"line {line} contradicts earlier lines: {claim}, not {self.size}", hint=_HINT)
        self.size = size

    def fits(self, rank: int, message: Message) -> bool:
        """Report whether the process of a message can be this rank."""
        if self.size and rank >= self.size:
            return False
        known = self.ranks.get(rank)
        if known is None or not known.host or not message.host:
            return True
        return (known.host, known.pid) == (message.host, message.pid)

    def place(self, rank: int, message: Message, found: Init | None = None) -> None:
        """Add a rank's own line. Raises UsageError if it contradicts another line."""
        if self.size and rank >= self.size:
            raise UsageError(f"line {message.line}: rank must be below {self.size}, got {rank}", hint=_HINT)
        known = self.ranks.get(rank)
        if known and not self.fits(rank, message):
            seen = f"rank {rank} is {message.host}:{message.pid} here and {known.host}:{known.pid} there"
            raise UsageError(f"line {message.line} contradicts line {known.line}: {seen}", hint=_HINT)
        known = known or model.Rank(rank=rank, host=message.host, pid=message.pid, line=message.line)
        if found is not None:
            given = {name: getattr(found, name) for name in ("cuda_dev", "nvml_dev", "bus_id")}
            new = {name: value for name, value in given.items() if value is not None}
            known = msgspec.structs.replace(known, **new, complete=known.complete or found.complete)
        elif known.cuda_dev is None and message.device is not None:
            known = msgspec.structs.replace(known, cuda_dev=message.device)
        self.ranks[rank] = known
        self.is_ready |= known.complete

    def add(self, fact: CommunicatorFact, message: Message) -> None:
        """Add a fact of this communicator. Raises UsageError if it contradicts another fact."""
        match fact:
            case Init() | Nodes():
                self.set_size(fact.size, message.line)
                self.place(fact.rank, message, fact if isinstance(fact, Init) else None)
                self.nodes = fact.nodes if isinstance(fact, Nodes) else self.nodes
            case model.Ring():
                known = self.orders.setdefault(fact.channel, fact)
                if known.ranks != fact.ranks:
                    problem = f"line {fact.line} contradicts line {known.line}: two rings for channel {fact.channel}"
                    raise UsageError(problem, hint=_HINT)
            case Step():
                self.steps.setdefault((fact.channel, fact.rank), fact)
            case model.TreeNode():
                self.trees.setdefault((fact.channel, fact.rank), fact)
            case model.Connection():
                self.connections.append(fact)
            case model.Search():
                self.searches.append(fact)
            case model.Counts():
                self.counts = self.counts or fact
            case Heads():
                self.heads.append(fact.ranks)
            case Pxn():
                self.pxn = fact.used

    def finish(self) -> model.Communicator:
        """Return the communicator as far as the log describes it."""
        size = self.size or self._min_size()
        first: dict[int, int] = {}
        for channel, rank in self.steps:
            first[channel] = min(rank, first.get(channel, rank))
        return model.Communicator(
            id=self.name,
            size=size,
            nodes=self.nodes,
            ranks=tuple(self.ranks[rank] for rank in sorted(self.ranks)),
            rings=tuple(self._ring(channel, size, first.get(channel, 0)) for channel in sorted({*self.orders, *first})),
            trees=tuple(self.trees[key] for key in sorted(self.trees)),
            nvls_heads=tuple(dict.fromkeys(self.heads)),
            connections=tuple(self.connections),
            searches=tuple(self.searches),
            counts=self.counts,
            pxn=self.pxn,
            line=self.line,
        )

    def _min_size(self) -> int:
        """Return the smallest number of ranks that the lines allow, if no line gives the number."""
        named = [*self.ranks, *(rank for ring in self.orders.values() for rank in ring.ranks)]
        named += [end for one in self.connections for end in (one.source, one.target)]
        return min(max(named, default=-1) + 1, MAX_RANKS)

    def _ring(self, channel: int, size: int, first: int) -> model.Ring:
        """Return the ring as rank 0 lists it. A truncated list is completed from the neighbors of each rank.

        `first` is the first rank whose neighbors are known.
        """
        listed = self.orders.get(channel)
        if listed is not None and listed.whole and len(listed.ranks) == size:
            return listed
        start = listed.ranks[0] if listed else first
        line = listed.line if listed else self.steps[(channel, start)].line
        ranks = {start: None}
        rank = start
        while (step := self.steps.get((channel, rank))) and len(ranks) <= size:
            rank = step.following
            if rank == start:
                return model.Ring(channel=channel, ranks=tuple(ranks), line=line)
            if rank in ranks:
                break  # a circle without the first rank
            ranks[rank] = None
        if listed is None:
            return model.Ring(channel=channel, ranks=tuple(ranks), whole=False, line=line)
        cut = len(listed.ranks) < size and (len(listed.ranks) >= _PRINTED_RANKS or not listed.whole)
        return msgspec.structs.replace(listed, whole=not cut)


class Drafts:
    """All communicators of a log."""

    def __init__(self) -> None:
        self.all: list[Draft] = []
        self._named: dict[str, Draft] = {}
        self._owned: dict[_Owner, Draft] = {}

    def take(self, fact: CommunicatorFact, message: Message) -> bool:
        """Add a fact to its communicator. Returns False if none fits, except for a tree: its line is kept."""
        rank = _find_speaker(fact)
        draft: Draft | None
        if isinstance(fact, Init):
            draft = self._find_init_draft(fact, message)
        elif isinstance(fact, model.Ring):
            draft = self._find_ring_draft(fact, message)
        else:
            draft = self._find_draft(message) if rank is None else self._find_rank_draft(message, rank)
        if draft is None:
            return isinstance(fact, model.TreeNode)
        draft.add(fact, message)
        if rank is not None:
            draft.place(rank, message)
        return True

    def finish(self) -> tuple[model.Communicator, ...]:
        """Return all communicators, the largest first."""
        finished = [draft.finish() for draft in self.all]
        return tuple(sorted(finished, key=lambda one: -one.size))

    def _find_draft(self, message: Message) -> Draft:
        """Find the communicator of a line without a name."""
        for owner in _owners(message):
            if owner in self._owned:
                return self._owned[owner]
        return self.all[-1] if self.all else self._begin("", message)

    def _find_rank_draft(self, message: Message, rank: int) -> Draft | None:
        """Find the communicator of a rank's own line, among those in which its process can be this rank.

        A process has other ranks in other communicators, so a line without a match is ignored rather than refused.
        """
        draft = self._find_draft(message)
        if draft.fits(rank, message):
            return draft
        recent = reversed(self.all[-_MAX_SEARCHED:])
        return next((one for one in recent if rank in one.ranks and one.fits(rank, message)), None)

    def _find_init_draft(self, found: Init, message: Message) -> Draft:
        """Find or create the communicator of an `Init` line, and make it that of its thread."""
        draft = self._named.get(found.comm) if found.comm else self._find_draft(message)
        if draft is not None and not found.comm.startswith("0x"):
            # Without an id, a rank that was already ready or another size starts a new communicator.
            known = draft.ranks.get(found.rank)
            if (known is not None and known.complete) or draft.size not in (0, found.size):
                draft = None
        return self._own(draft or self._adopt(found, message) or self._begin(found.comm, message), message)

    def _find_ring_draft(self, found: model.Ring, message: Message) -> Draft:
        """Find the communicator of a ring.

        A second ring for a channel of a ready communicator without id starts the next.
        """
        draft = self._find_draft(message)
        if found.channel in draft.orders and not draft.name and draft.is_ready:
            return self._own(self._begin("", message), message)
        return draft

    def _own(self, draft: Draft, message: Message) -> Draft:
        self._owned.update(dict.fromkeys(_owners(message), draft))
        return draft

    def _adopt(self, found: Init, message: Message) -> Draft | None:
        """Give an id to the communicator read without one. A log without START lines has the id only at the end."""
        if not found.comm or not found.complete or found.comm in self._named:
            return None
        unnamed = self._find_draft(message) if self.all else None
        if unnamed is None or unnamed.name:
            return None
        unnamed.name = found.comm
        self._named[found.comm] = unnamed
        return unnamed

    def _begin(self, name: str, message: Message) -> Draft:
        if len(self.all) >= MAX_COMMUNICATORS:
            raise UsageError(
                f"line {message.line} begins communicator {len(self.all) + 1}; at most {MAX_COMMUNICATORS} can be read",
                hint="give the log up to the first operation",
            )
        draft = Draft(name, message.line)
        self.all.append(draft)
        if name:
            self._named[name] = draft
        return draft


def _owners(message: Message) -> tuple[_Owner, _Owner]:
    device = -1 if message.device is None else message.device
    return (message.host, message.pid, "thread", message.thread), (message.host, message.pid, "device", device)


def _find_speaker(fact: CommunicatorFact) -> int | None:
    """Return the rank that wrote the line, if the fact shows it."""
    if isinstance(fact, model.Connection):
        return fact.target if fact.direction == "receive" else fact.source
    return fact.rank if isinstance(fact, Step | model.TreeNode) else None
