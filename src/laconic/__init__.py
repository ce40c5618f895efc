"""Laconic makes fine-tuned text encoders small and fast, and runs them on CPUs without torch."""

from __future__ import annotations

__version__ = "0.1.0.dev0"
