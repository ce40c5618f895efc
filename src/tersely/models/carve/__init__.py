"""Smaller models of the same build: the shape, where it cuts, and the model that results."""

from .places import Places, Slice, locate, shape_of, slices
from .shape import Shape, shape_for
from .shrink import carve, shrink, skeleton, twin

__all__ = [
    "Places", "Shape", "Slice", "carve", "locate", "shape_for", "shape_of", "shrink", "skeleton", "slices", "twin",
]  # fmt: skip
