"""cuFile's configuration as text: JSON with a comment above each line, like cuFile's own file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

import msgspec

from railwright.checks.cufile_settings import CheckedEntry, Setting
from railwright.report.text.collectives import labelled
from railwright.terminal import escape

_WIDTH = 100


def render_cufile_json(name: str, settings: Iterable[Setting]) -> str:
    """Render the whole file; its first comment names the machine `name`."""
    lines = [f"// For {escape(name)}. Set CUFILE_ENV_PATH_JSON to its path, or install it as /etc/cufile.json.", "{",
             '    "properties": {']  # fmt: skip
    written = [list(_setting_lines(setting)) for setting in settings]
    for place, entry in enumerate(written):
        lines += [*entry[:-1], entry[-1] + ("," if place < len(written) - 1 else "")]
    return "\n".join([*lines, "    }", "}"]) + "\n"


def _setting_lines(setting: Setting) -> Iterator[str]:
    indent = " " * 8
    yield from textwrap.wrap(escape(setting.why), _WIDTH, initial_indent=f"{indent}// ",
                             subsequent_indent=f"{indent}// ", break_on_hyphens=False)  # fmt: skip
    yield f"{indent}{msgspec.json.encode(setting.key).decode()}: {msgspec.json.encode(setting.value).decode()}"


def setting_lines(checked: Iterable[CheckedEntry]) -> Iterator[str]:
    """Yield the state and value of each checked setting, and its remedy if it has one, as wrapped lines."""
    for item in checked:
        yield from labelled(item.state, f"{item.key}: {item.seen}", indent=2)
        if item.remedy:
            yield from labelled("remedy", item.remedy, indent=14)
