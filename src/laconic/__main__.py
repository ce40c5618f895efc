"""`python -m laconic` is the `laconic` command."""

from .cli import main

raise SystemExit(main())
