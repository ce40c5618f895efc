"""Smaller models of the same build: the shape, where it cuts, and the model that results."""

from .places import Places, locate, shape_of
from .shape import Shape, shape_for
from .shrink import carve, shrink, skeleton, twin
from .slices import Slice, slices

__all__ = [
    "Places", "Shape", "Slice", "carve", "locate", "shape_for", "shape_of", "shrink", "skeleton", "slices", "twin",
]  # fmt: skip
