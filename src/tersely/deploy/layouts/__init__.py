"""Artifacts in the forms that other programs load: one file each."""

from __future__ import annotations

from .layout import LaidOut, Layout, lay_out
from .openvino import OpenVinoLayout
from .triton import TritonLayout

__all__ = ["LaidOut", "Layout", "OpenVinoLayout", "TritonLayout", "lay_out"]
