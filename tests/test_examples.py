"""Every example in a docstring runs and gives what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import tersely

MODULES = [found.name for found in pkgutil.walk_packages(tersely.__path__, "tersely.") if "__main__" not in found.name]


@pytest.mark.parametrize("module", ["tersely", *MODULES])
def test_examples_of_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_there_are_examples_to_run():
    found = [example for name in MODULES for example in doctest.DocTestFinder().find(importlib.import_module(name))]
    assert sum(bool(test.examples) for test in found) > 40
