"""A process that has only what the base install brings: code to begin it with."""

from __future__ import annotations

ABSENT = {"torch", "transformers", "datasets", "onnx", "safetensors", "accelerate"}
BLOCKED = f"""
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in {ABSENT} else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Without, sys.meta_path)
"""
