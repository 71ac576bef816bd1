"""The entry point of `railwright` and of `python -m railwright`."""

from __future__ import annotations

import gc


def main() -> None:
    """Run the command line and exit with its status."""
    # An import makes tens of thousands of objects, none of them garbage: scanning them takes a tenth of --help's time.
    gc.set_threshold(50_000)
    from railwright.main import main as run

    run()


if __name__ == "__main__":
    main()
