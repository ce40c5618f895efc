"""`python -m tersely` is the `tersely` command."""

from .cli import main

raise SystemExit(main())
