"""`railwright completion SHELL`: prints the script that completes railwright's words in a shell."""

from __future__ import annotations

import click

from railwright.errors import EXIT_OK
from railwright.options.help import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> int:
    """Print the script that completes verbs, options, shapes, collectives, benchmarks and checks in a shell.

    \b
    railwright completion bash > ~/.local/share/bash-completion/completions/railwright
    railwright completion zsh > "${fpath[1]}/_railwright"
    railwright completion fish > ~/.config/fish/completions/railwright.fish

    Bash 4.4 or later and its package bash-completion are required, and in zsh compinit. A new shell has it.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(click.Command("railwright"), {}, "railwright", "_RAILWRIGHT_COMPLETE")
    # `source` would run bash to learn its version.
    click.echo(script.source_template % script.source_vars())
    return EXIT_OK
