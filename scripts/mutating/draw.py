"""Draws mutants at random, distributed over packages by size, with at least one in each."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

from mutating.languages import C, Go, Language, Python

SPREAD: tuple[tuple[type[Language], int], ...] = ((Python, 39), (C, 3), (Go, 18))
"""The number of mutants per language, roughly proportional to its lines in src/railwright and node/."""


@dataclass(frozen=True)
class Mutant:
    """A line of a file, original and altered; `line` counts from 1."""

    number: int
    language: str
    package: str
    path: str
    line: int
    kind: str
    before: str
    after: str

    def apply(self, text: str) -> str:
        """Apply the mutant to a later source, in which its line may have moved."""
        lines = text.splitlines(keepends=True)
        places = [number for number, line in enumerate(lines, 1) if line.rstrip("\n") == self.before]
        place = self.line if self.line in places else places[0] if len(places) == 1 else None
        if place is None:
            sys.exit(f"mutant {self.number}: {self.path}:{self.line} has changed since it was drawn; draw again")
        lines[place - 1] = self.after + "\n"
        return "".join(lines)


def spread(sizes: dict[str, int], count: int) -> dict[str, int]:
    """Give each package one mutant, and distribute the rest by lines, with largest remainders."""
    rest = count - len(sizes)
    quotas = {name: rest * size / sum(sizes.values()) for name, size in sizes.items()}
    given = {name: 1 + int(quota) for name, quota in quotas.items()}
    by_remainder = sorted(quotas, key=lambda name: (int(quotas[name]) - quotas[name], name))
    for name in by_remainder[: count - sum(given.values())]:
        given[name] += 1
    return given


def draw(tree: Path, seed: int) -> list[Mutant]:
    """Draw from a private tree of the repository: candidates are written into it and reverted."""
    chance = random.Random(seed)
    found: list[Mutant] = []
    for language, count in SPREAD:
        mutator = language(tree)
        packages = mutator.packages()
        sizes = {name: sum(len(path.read_text().splitlines()) for path in paths) for name, paths in packages.items()}
        for package, wanted in sorted(spread(sizes, count).items()):
            texts = {path: path.read_text().splitlines() for path in packages[package]}
            lines = [(path, line) for path, text in texts.items() for line in range(1, len(text) + 1)]
            chance.shuffle(lines)
            for path, line in lines:
                if wanted and (mutant := _mutant(mutator, path, line, package, len(found) + 1, chance)):
                    found.append(mutant)
                    wanted -= 1
    return found


def _mutant(
    mutator: Language, path: Path, line: int, package: str, number: int, chance: random.Random
) -> Mutant | None:
    kinds = mutator.changes(path).get(line)
    if not kinds:
        return None
    kind = chance.choice(sorted(kinds))
    after = chance.choice(kinds[kind])()
    if after is None:
        return None
    name = path.relative_to(mutator.tree).as_posix()
    before = path.read_text().splitlines()[line - 1]
    mutant = Mutant(number, type(mutator).__name__, package, name, line, kind, before, after)
    if mutator.runs(path, mutant.apply(path.read_text())):
        return mutant
    print(f"drawn again, because it does not compile: {name}:{line} {after.strip()}", file=sys.stderr)
    return None
