"""Designs side by side as plain text, at most 100 columns wide, for `whatif`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from railwright.expected.designs import Design, Question, Reach, Saving, list_cautions
from railwright.limits.limit import Limit
from railwright.limits.switches import SwitchTier
from railwright.report.text import wording
from railwright.report.text.collectives import rate_words
from railwright.units import format_bandwidth, format_count

_WIDTH = 100
_MAX_LABEL = 24
_NEARLY_ALL = 0.995
_ALIKE = (
    "between hosts these designs are alike, because NIC ports of one rate hold all of them back; inside a host they may"
    " differ: railwright limits --host SHAPE --collective all_reduce"
)
_OPTICS_WORDS = {
    "all": "all cables are optical, two optics each",
    "switches": "cables between switches are optical, two optics each; those to NICs are copper",
    "none": "all cables are copper",
}

_Rows = Sequence[tuple[str, Design]]
"""The designs, each with its distinguishing label, padded to the widest label."""


def render_designs(designs: Sequence[Design], question: Question) -> str:
    """Render the designs with their collectives, KV-cache paths, parts and savings."""
    names = labels(designs)
    width = max(map(len, names))
    rows = [(label.ljust(width), design) for label, design in zip(names, designs, strict=True)]
    blocks = [
        [title_words(designs), *_name_rows(rows)],
        [*_collectives(rows)],
        [*_paths(rows)],
        [*_parts(rows)],
        [*_choice(rows)],
        [*_notes(designs, question)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def title_words(designs: Sequence[Design]) -> str:
    """Format the title, like `3 designs of 16 hosts, 128 GPUs`, with what all designs have in common."""
    hosts, gpus = {design.hosts for design in designs}, {design.gpus for design in designs}
    shared = [f"{format_count(min(hosts), 'host')}"] * (len(hosts) == 1) + [f"{min(gpus)} GPUs"] * (len(gpus) == 1)
    return f"{format_count(len(designs), 'design')} of {', '.join(shared) or 'different sizes'}"


def labels(designs: Sequence[Design]) -> tuple[str, ...]:
    """Label the designs by the words that not all of them share, or as `design 2` if those are long."""
    words = [wording.escape(design.name).split() for design in designs]
    shared = set.intersection(*map(set, words)) if len(words) > 1 else set()
    found = [" ".join(word for word in name if word not in shared) or " ".join(name) for name in words]
    if max(map(len, found)) > _MAX_LABEL or len(set(found)) < len(found):
        return tuple(f"design {number}" for number in range(1, len(found) + 1))
    return tuple(found)


def tier_words(tiers: Sequence[SwitchTier]) -> str:
    """Format the switches of all tiers, like `4 leaf and 2 spine switches`."""
    parts = [f"{tier.switches} {wording.escape(tier.name)}" for tier in tiers]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{listed} {'switch' if sum(tier.switches for tier in tiers) == 1 else 'switches'}"


def loss_words(reach: Reach) -> str:
    """Format the loss against the best design as `-75 %` or `best`; empty without another design."""
    if reach.loss is None:
        return ""
    return less_words(reach.loss) if reach.loss else "best"


def less_words(share: float) -> str:
    """Format a reduction like `-75 %`. A share below 1 is never shown as -100 %."""
    rounded = f"{share * 100:.1f} %" if _NEARLY_ALL <= share < 1 else wording.percent(share)
    return f"-{rounded}"


def saving_words(saving: Saving) -> str:
    """Format the parts saved, like `saves 96 NICs, 224 cables`, and the parts needed in addition."""
    counts = {
        "NICs": saving.nics,
        "cables": saving.cables,
        "optics": saving.optics,
        "leaf ports": saving.leaf_ports,
        "uplink ports": saving.uplink_ports,
        "spine ports": saving.spine_ports,
    }
    fewer = [f"{number} {part}" for part, number in counts.items() if number > 0]
    more = [f"{-number} {part}" for part, number in counts.items() if number < 0]
    parts = [f"saves {', '.join(fewer)}"] * bool(fewer) + [f"needs {', '.join(more)} more"] * bool(more)
    parts = parts or ["as many network parts"] if saving.unlike else parts or ["the same network parts"]
    return "; ".join([*parts, *(f"other {part}" for part in saving.unlike)])


def money(amount: float, currency: str) -> str:
    """Format an amount of money, like `1,234,567 EUR`."""
    return f"{amount:,.0f} {wording.escape(currency)}"


def mark_words(design: Design, named: dict[str, str]) -> str:
    """Format `Pareto`, or name the designs that are no dearer and no slower."""
    if design.pareto is None:
        return "not compared: its parts are unlike"
    if design.pareto:
        return "Pareto"
    return f"beaten by {', '.join(named[name] for name in design.beaten_by[:2])}"


def notes(designs: Sequence[Design], question: Question) -> tuple[str, ...]:
    """List the assumptions behind counts and prices, a sentence each."""
    fabrics = dict.fromkeys(design.fabric for design in designs)
    found = [f"the fabric is {fabric}" for fabric in fabrics]
    found.append(_OPTICS_WORDS[question.optics])
    if question.prices is not None:
        found.append(f"prices: {wording.escape(question.prices.title)}")
    return (*found, *list_cautions(designs, question.prices))


def are_alike(designs: Sequence[Design]) -> bool:
    """Report whether all designs reach the same rates in all collectives."""

    def reached(design: Design) -> tuple[str, ...]:
        return tuple(
            f"{format_bandwidth(one.busbw_bytes_per_s.limit)} {rate_words(one.busbw_bytes_per_s)}"
            for one in design.collectives
        )

    return len(set(map(reached, designs))) == 1


def _name_rows(rows: _Rows) -> Iterator[str]:
    unlike = len({design.hosts for _, design in rows}) > 1
    for label, design in rows:
        name = wording.escape(design.name)
        hosts = f"{format_count(design.hosts, 'host')}, " if unlike else ""
        full_name = "" if label.rstrip() == name else f"{name}, "
        yield f"  {label}  {full_name}{hosts}{design.scale}, {tier_words(design.parts.tiers)}"


def _collectives(rows: _Rows) -> Iterator[str]:
    (first_label, first), alone = rows[0], len(rows) == 1
    loss = "" if alone else f"{'loss':>8}"
    yield f"{'busbw, large sizes':{18 + len(first_label)}}{'limit':>10}   {'expected':22}{loss}   held back by"
    for place, of_first in enumerate(first.collectives):
        for label, design in rows:
            reach = design.collectives[place]
            rate = reach.busbw_bytes_per_s
            title = of_first.collective if design is first else ""
            line = f"{title:16}{label}  {format_bandwidth(rate.limit):>10}   {rate_words(rate):22}"
            loss = "" if alone else f"{loss_words(reach):>8}"
            yield f"{line}{loss}   {reach.held_back_by} ({reach.algorithm})".rstrip()


def _paths(rows: _Rows) -> Iterator[str]:
    yield "KV cache to the next host"
    for label, design in rows:
        for number, row in enumerate(design.paths):
            far = design.far_gpu
            kind = f"  {far.nearest_nic_kind} to its NIC" if far and row.path.startswith(f"{far.gpu}@") else ""
            limit = format_bandwidth(row.limit.value) if isinstance(row.limit, Limit) else "no limit"
            yield f"  {label if number == 0 else '':{len(label)}}  {row.path:38} {limit:>10}{kind}".rstrip()


def _parts(rows: _Rows) -> Iterator[str]:
    width = max(len(rows[0][0]), 12)
    heads = f"{'NICs':>7}{'cables':>8}{'optics':>8}{'leaves':>8}{'ports':>8}{'uplinks':>9}{'spines':>8}{'ports':>8}"
    yield f"{'network parts':{width + 2}}{heads}"
    for label, design in rows:
        parts = design.parts
        yield (
            f"  {label:{width}}{parts.nics:>7}{parts.cables:>8}{parts.optics:>8}{parts.leaf_switches:>8}"
            f"{parts.leaf_ports:>8}{parts.leaf_uplink_ports:>9}{parts.spine_switches:>8}{parts.spine_ports:>8}"
        )


def _choice(rows: _Rows) -> Iterator[str]:
    """Yield cost and saving; a single design has at most a cost."""
    named = {design.name: label.rstrip() for label, design in rows}
    if len(rows) == 1:
        cost = rows[0][1].cost
        if cost is not None:
            yield f"cost  {money(cost.total, cost.currency)}"
        return
    for against in dict.fromkeys(design.saving.against if design.saving else "" for _, design in rows):
        if against:
            yield f"against {named[against]}, the {'dearest' if rows[0][1].cost else 'one with the most switch ports'}"
        for label, design in rows:
            if (design.saving.against if design.saving else "") == against:
                yield from _choice_lines(label, design, named)


def _choice_lines(label: str, design: Design, named: dict[str, str]) -> Iterator[str]:
    saving = design.saving
    cost = f"{money(design.cost.total, design.cost.currency) if saving else '':>20}" if design.cost else ""
    share = less_words(saving.share) if saving and saving.share else ""
    yield f"  {label}{cost}{share:>8}   {mark_words(design, named)}"
    if saving is not None and design.name != saving.against:
        yield from textwrap.wrap(saving_words(saving), _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _notes(designs: Sequence[Design], question: Question) -> Iterator[str]:
    if any(design.saving for design in designs):
        collective = designs[0].collectives[0].collective
        dearer = "dearer" if question.prices is not None else "has more switch ports"
        yield f"Pareto: every other design is slower in {collective} or {dearer}"
    if len(designs) > 1 and designs[0].hosts > 1 and are_alike(designs):
        yield from textwrap.wrap(_ALIKE, _WIDTH, initial_indent="note  ", subsequent_indent="      ")
    for sentence in notes(designs, question):
        yield from textwrap.wrap(sentence, _WIDTH, initial_indent="note  ", subsequent_indent="      ")
