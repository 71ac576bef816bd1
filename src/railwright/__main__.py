"""`python -m railwright`: the same command line as the `railwright` script."""

from __future__ import annotations

from railwright.main import main

if __name__ == "__main__":
    main()
