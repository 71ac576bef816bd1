"""`railwright man`: a page for every command, with all of its options."""

from __future__ import annotations

from tests.conftest import InProcess
from tests.main.test_help import commands

from railwright.main import cli


def test_every_command_has_a_page(answer: InProcess) -> None:
    assert answer("man", "--output", "pages").status == 0
    names = {file.name for file in (answer.folder / "pages").iterdir()}
    assert names == {"railwright.1", *(f"railwright-{'-'.join(words)}.1" for words in commands(cli))}
    for file in (answer.folder / "pages").iterdir():
        text = file.read_text()
        assert text.startswith(f'.TH "{file.stem.upper()}" "1"')
        assert ".SH SYNOPSIS" in text
        assert "\b" not in text
        requests = {line.split()[0] for line in text.splitlines() if line.startswith((".", "'"))}
        assert requests <= {".TH", ".SH", ".B", ".PP", ".TP", ".nf", ".fi"}


def test_the_page_of_a_verb_has_its_examples_and_options(answer: InProcess) -> None:
    page = answer("man", "prove").out
    assert page.index(".SH EXAMPLES\n.nf\nrailwright prove\n") < page.index(".SH OPTIONS")
    for option in ("\\-\\-hosts\\-file FILE", "\\-o, \\-\\-option"):
        assert f"\\fB{option}" in page
    assert answer("man", "lab", "up").out.startswith('.TH "RAILWRIGHT-LAB-UP"')
    refused = answer("man", "prov")
    assert (refused.status, "did you mean prove" in refused.err) == (2, True)
    assert "railwright, run" not in answer("man", "quux").err
