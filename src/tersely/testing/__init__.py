"""Checks for what you plug in yourself: each runs the properties that Tersely relies on and names the one broken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .calibrator import check_calibrator

if TYPE_CHECKING:
    from .family import check_family

__all__ = ["check_calibrator", "check_family"]


def __getattr__(name: str) -> Any:
    if name != "check_family":  # brings torch and transformers with it
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from .family import check_family

    return check_family
