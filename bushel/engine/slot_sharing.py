"""Who gets a slot and who yields one: shared between owners, then between their requests.

Owners with the fewest slots are next, then of an owner the request (`group`) with the fewest; among
equals the one that was served longest ago, then the order of the policy (B67). A request without a
slot that has waited for start_wait takes one from an owner with at least two more, or from a
request of its own owner with more than a quarter of all. The row that is preempted has run for
start_wait, so that no row is preempted often. It keeps its state, unless memory is short. Then the
youngest is preempted, but never the oldest of its owner's that hold state: that one runs to its
end.

Memory is promised with a slot, for the prompt and some room; rows grow into more. When there is no
more, the youngest of all are preempted and lose their state until the others fit, and come back
before new requests. The oldest of all never is, and alone it fits. A request that does not fit lets
others pass, until it has waited for `oldest`, or at once if it was preempted for want of memory
(`returning`). From then on no other takes memory before it, except a row whose request has no slot:
it may hold memory that only it can give back.

Of an owner's requests those of the lowest `priority` are next, and take slots from its others as
above; between owners it makes no difference. Background work comes after all other work, and beside
live rows it has few slots: the other rows yield at once, and come back when there has been no live
work for start_wait. No class of work starves (B82): one that has waited for `oldest` since it last
got a slot gets the next one that is free.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from bushel.engine.plan import BEFORE, PendingPrompt, Policy, Row, State, WorkClass

Claim = Row | PendingPrompt  # of a slot: a row without one, or a job that waits
# Live rows for each row in the background that decodes beside them, which is at least one. A step
# of nine rows takes no more than an eighth longer than one of eight, even where each row costs as
# much as the first.
LIVE_PER_BACKGROUND = 8
_FIRST = -(1 << 63)  # before any priority


@dataclass
class Slots:
    """Who has a slot, and who gets one, while a plan is made."""

    state: State
    policy: Policy
    owners: Counter[str] = field(default_factory=Counter)  # slots that they hold
    groups: Counter[str] = field(default_factory=Counter)
    admitted: list[PendingPrompt] = field(default_factory=list)
    joining: list[Row] = field(default_factory=list)
    preempted: list[Claim] = field(default_factory=list)
    dropped: list[Claim] = field(default_factory=list)
    promoted: set[int] = field(default_factory=set)  # who go first, whatever their priority

    def __post_init__(self) -> None:
        state = self.state
        with_slot = [row for row in state.ready if row.slot]
        self.holders: list[Claim] = [*state.running, *state.prefilling]
        self.free = self.policy.max_batch - len(self.holders) - len(with_slot)
        self.memory = state.memory
        self.claims: list[Claim] = [row for row in state.ready if not row.slot]
        self.claims += state.waiting
        held = (*self.holders, *with_slot)
        self.background = sum(holder.background for holder in held)
        live = sum(not work.background for work in (*held, *self.claims))
        # Who asks now and then would else find a batch each time that has just come back.
        alone = not live and state.now - state.served.live >= self.policy.start_wait
        few = max(1, live // LIVE_PER_BACKGROUND)
        self.most_background = self.policy.max_batch if alone else few
        if self.claims:
            self.owners.update(holder.owner for holder in held)
            self.groups.update(holder.group for holder in held)
            if len({(claim.background, claim.priority) for claim in self.claims}) > 1:
                self._promote()

    def _promote(self) -> None:
        """Of every class that has waited for too long, while others went before it, the first."""
        classes: dict[WorkClass, Claim] = {}
        for claim in sorted(self.claims, key=lambda claim: (claim.order, claim.id)):
            classes.setdefault(WorkClass.of(claim), claim)
        live = any(not each.background for each in classes)
        first: dict[str, WorkClass] = {}
        for each in classes:
            first[each.owner] = min(first.get(each.owner, each), each)
        for each, claim in classes.items():
            if each == first[each.owner] and not (each.background and live):
                continue  # nobody goes before it
            served = self.state.served.classes.get(each, BEFORE)
            if self.state.now - max(served, _waits_since(claim)) >= self.policy.oldest:
                self.promoted.add(claim.id)

    def relieve(self) -> None:
        """Where rows have grown to more than there is, the youngest yield."""
        chunk = min(self.policy.least_chunk, self.policy.prefill_chunk)
        if self.memory is None or self.memory.fits(chunk):
            return
        with_slot = [row for row in self.state.ready if row.slot]
        held: list[Claim] = [*self.holders, *with_slot, *self._idle()]
        held.sort(key=lambda holder: (holder.order, holder.id))
        for victim in held[:0:-1]:
            if self.memory.fits(chunk):
                return
            if victim in self.holders:
                self.preempted.append(victim)
            if victim in self.holders or victim in with_slot:
                self._count(victim, -1)
            self.dropped.append(victim)
            self.memory = self.memory.without_rows(_held(victim), victim.length)

    def clear(self) -> None:
        """Work in the background makes way for live work: its rows yield at once but for a few, and
        those when somebody lacks their slots.
        """
        background = [holder for holder in self.holders if holder.background]
        claims = sum(not claim.background for claim in self.claims)
        if self.dropped or not background:
            return
        background.sort(key=lambda holder: (holder.order, holder.id))
        few = self.most_background
        victims = background[few:]
        late = self.state.now - self.policy.start_wait
        lacking = claims - self.free - len(victims)
        if lacking > 0:
            able = [holder for holder in background[:few] if holder.since <= late]
            victims += able[-lacking:]
        for victim in victims:
            self.preempted.append(victim)
            self._count(victim, -1)

    def hand_out(self) -> None:
        """Give away the free slots; not in a step in which someone has to yield."""
        if self.free <= 0 or not self.claims or self.dropped:
            return
        given = set[int]()
        behind = False  # someone old who does not fit
        for claim in self._in_turn(self.claims):
            if claim.background and self.background >= self.most_background:
                continue
            if self._may_pass(claim, behind) and self._fits_beside(claim):
                self._give(claim)
                given.add(claim.id)
                if self.free <= 0:
                    break
            else:
                behind = behind or self._is_old(claim)
        self.claims = [waiter for waiter in self.claims if waiter.id not in given]

    def take_back(self) -> None:
        """Make way for those who hold nothing and have waited for too long."""
        if self.dropped:
            return
        late = self.state.now - self.policy.start_wait
        urgent = [waiter for waiter in self.claims if _waits_since(waiter) <= late]
        urgent = [
            waiter for waiter in urgent if not self.groups[waiter.group] and not waiter.background
        ]
        if not self._contested(urgent):
            return
        hopeless, behind = set[str](), False
        for claim in self._in_turn(urgent):
            if claim.owner in hopeless or self.groups[claim.group]:
                continue
            if self._may_pass(claim, behind) and self._make_way(claim):
                self._give(claim)
            else:
                hopeless.add(claim.owner)
                behind = behind or self._is_old(claim)

    def _may_pass(self, claim: Claim, behind: bool) -> bool:
        """Whether it may take memory although someone old, who does not fit, comes before it."""
        alone = isinstance(claim, Row) and not self.groups[claim.group]
        return alone or not behind or not _need(claim)

    def _is_old(self, claim: Claim) -> bool:
        returning = isinstance(claim, PendingPrompt) and claim.returning
        return returning or self.state.now - _waits_since(claim) >= self.policy.oldest

    def _contested(self, urgent: Sequence[Claim]) -> bool:
        """Whether any of them may take from someone; most times nobody may."""
        if not urgent or not self.owners:
            return False
        owners, lowest = {claim.owner for claim in urgent}, min(claim.priority for claim in urgent)
        if any(holder.priority > lowest for holder in self.holders):
            return True
        least = min(self.owners[owner] for owner in owners)
        uneven = max(self.owners.values()) >= least + 2 and len(owners | set(self.owners)) > 1
        idle = self.memory is not None and bool(self._idle())
        return uneven or idle or max(self.groups.values()) >= self.policy.share

    def _in_turn(self, claims: Sequence[Claim]) -> Iterator[Claim]:
        """Who is next, and next; a slot given meanwhile counts."""
        owners, groups = {waiter.owner for waiter in claims}, {waiter.group for waiter in claims}
        if len(owners) == 1 and len(groups) == len(claims):
            yield from sorted(claims, key=self._place)  # no slot given changes their places
            return
        queues: dict[str, dict[str, deque[Claim]]] = defaultdict(lambda: defaultdict(deque))
        for claim in sorted(claims, key=self._rank):
            queues[claim.owner][claim.group].append(claim)

        def place(owner: str, group: str) -> _Place:
            return self._place(queues[owner][group][0])

        def turn(owner: str) -> _Turn:
            (background, _), _, _, rank, _ = heaps[owner][0]
            served = self.state.served.owners.get(owner, BEFORE)
            return background, self.owners[owner], served, rank, owner

        heaps = {
            owner: [place(owner, name) for name in by_group] for owner, by_group in queues.items()
        }
        for heap in heaps.values():
            heapq.heapify(heap)
        turns = [turn(owner) for owner in queues]
        heapq.heapify(turns)
        while turns:
            owner = heapq.heappop(turns)[-1]
            group = heapq.heappop(heaps[owner])[-1]
            yield queues[owner][group].popleft()
            if queues[owner][group]:
                heapq.heappush(heaps[owner], place(owner, group))
            if heaps[owner]:
                heapq.heappush(turns, turn(owner))

    def _place(self, claim: Claim) -> _Place:
        """Among its owner's."""
        group = claim.group
        returning = isinstance(claim, PendingPrompt) and claim.returning
        served = BEFORE if returning else self.state.served.groups.get(group, BEFORE)
        level = claim.background, claim.priority
        if claim.id in self.promoted:
            level = False, _FIRST
        return level, self.groups[group], served, self._rank(claim), group

    def _rank(self, claim: Claim) -> _Rank:
        if self.policy.order == "arrival":
            return False, 0, claim.order, claim.id
        old = self._is_old(claim)
        remaining = claim.remaining if isinstance(claim, PendingPrompt) and not old else 0
        return not old, remaining, claim.order, claim.id

    def _fits(self, claim: Claim) -> bool:
        if self.memory is None or not _need(claim):
            return True
        chunk = min(self.policy.least_chunk, self.policy.prefill_chunk)
        return self.memory.with_rows(_need(claim), claim.length).fits(chunk)

    def _fits_beside(self, claim: Claim) -> bool:
        """It fits, or does when work in the background gives up state that waits for a slot."""
        dropped, memory = len(self.dropped), self.memory
        while not self._fits(claim):
            if claim.background or not self._drop(claim, 0, background=True):
                del self.dropped[dropped:]
                self.memory = memory
                return False
        return True

    def _give(self, claim: Claim) -> None:
        self._count(claim, 1)
        if self.memory is not None and _need(claim):
            self.memory = self.memory.with_rows(_need(claim), claim.length)
        if isinstance(claim, PendingPrompt):
            self.admitted.append(claim)
        else:
            self.joining.append(claim)

    def _make_way(self, claim: Claim) -> bool:
        """Take a slot, and memory if need be; nothing at all if that would not do."""
        counts = len(self.preempted), len(self.dropped), self.memory
        done = self.free > 0 or self._preempt(claim)
        while done and not self._fits(claim):
            done = self._drop(claim, counts[0]) or self._preempt(claim)
        if not done:
            for victim in self.preempted[counts[0] :]:
                self._count(victim, 1)
            del self.preempted[counts[0] :], self.dropped[counts[1] :]
            self.memory = counts[2]
        return done

    def _preempt(self, claim: Claim) -> bool:
        """Of whoever holds most, the youngest of those who yielded least.

        Where memory lacks, whoever yields loses its state. If they took turns at that, nobody
        would come further than the last time.
        """
        late = self.state.now - self.policy.start_wait
        able = [
            holder
            for holder in self.holders
            if holder.since <= late
            and holder not in self.preempted
            and self._yields_to(holder, claim)
        ]
        key = self._holds_most
        if not self._fits(claim):
            able, key = self._droppable(able), self._youngest
        if not able:
            return False
        victim = max(able, key=key)
        self.preempted.append(victim)
        self._count(victim, -1)
        return True

    def _yields_to(self, holder: Claim, claim: Claim) -> bool:
        if holder.owner != claim.owner:
            return self.owners[holder.owner] >= self.owners[claim.owner] + 2
        if holder.priority != claim.priority:
            return holder.priority > claim.priority
        return self.groups[holder.group] >= self.policy.share

    def _holds_most(self, holder: Claim) -> tuple[int, ...]:
        owner, group = self.owners[holder.owner], self.groups[holder.group]
        return owner, holder.priority, group, -holder.yields, holder.order, holder.id

    def _youngest(self, holder: Claim) -> tuple[int, ...]:
        """Of whoever holds most."""
        owner, group = self.owners[holder.owner], self.groups[holder.group]
        return owner, holder.background, holder.priority, group, holder.order, holder.id

    def _droppable(self, holders: Iterable[Claim]) -> list[Claim]:
        """All but the oldest that holds state, of each owner's live work and of its other: these
        run to their ends.
        """
        with_slot = (row for row in self.state.ready if row.slot)
        holding = (*self.holders, *with_slot, *self._idle())
        oldest: dict[tuple[str, bool], tuple[int, int]] = {}
        for holder in holding:
            age, whose = (holder.order, holder.id), (holder.owner, holder.background)
            oldest[whose] = min(oldest.get(whose, age), age)
        return [
            candidate
            for candidate in holders
            if (candidate.order, candidate.id) != oldest[candidate.owner, candidate.background]
        ]

    def _drop(self, claim: Claim, own: int, *, background: bool = False) -> bool:
        """State of someone who does not run: now from `preempted[own:]`, or for longer.

        background: only of work that is.
        """
        taken = (*self.joining, *self.admitted, *self.dropped, claim)

        def able_of(holders: Iterable[Claim]) -> list[Claim]:
            candidates = [one for one in holders if one.background or not background]
            return self._droppable(one for one in candidates if one not in taken)

        able = able_of(self._idle()) or able_of(self.preempted[own:])
        if not able or self.memory is None:
            return False
        victim = max(able, key=self._youngest)
        self.dropped.append(victim)
        self.memory = self.memory.without_rows(_held(victim), victim.length)
        return True

    def _idle(self) -> list[Claim]:
        """Who holds state without a slot."""
        ready = [row for row in self.state.ready if row.state and not row.slot]
        return [*ready, *(job for job in self.state.waiting if job.state)]

    def _count(self, holder: Claim, change: int) -> None:
        """It has a slot more, or less."""
        self.free -= change
        self.background += change if holder.background else 0
        self.owners[holder.owner] += change
        self.groups[holder.group] += change


_Rank = tuple[bool, int, int, int]
_Place = tuple[tuple[bool, int], int, float, _Rank, str]
_Turn = tuple[bool, int, float, _Rank, str]


def _waits_since(claim: Claim) -> float:
    return claim.since if isinstance(claim, Row) else claim.last_served


def _held(claim: Claim) -> int:
    """Rows that its state takes: choices of one prompt share a copy until each has its own."""
    return 1 if isinstance(claim, Row) else min(claim.rows, 2)


def _need(claim: Claim) -> int:
    """Rows to promise to it with a slot."""
    return 0 if claim.state else _held(claim)
