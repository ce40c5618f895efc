"""Which tests stay on one worker: a file's, as they share costly fixtures; pages of the docs share none."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

ALONE = ("tests/test_docs.py",)


class ByFileOrPage(LoadScopeScheduling):
    """One file a scope, one test a scope where tests are long and have nothing in common."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return nodeid if scope in ALONE else scope
