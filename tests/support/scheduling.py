"""Which tests stay on one worker: a file's, as they share costly fixtures; some files' share none."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

ALONE = ("tests/test_docs.py", "tests/compression/test_matrix.py")
"""Files of long tests with nothing in common: pages of the docs, tasks of the matrix."""


class ByFile(LoadScopeScheduling):
    """One file a scope, its classes together, for they share its fixtures; one test a scope where files are `ALONE`."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return nodeid if file in ALONE else file
