"""Graphs: `export` makes them from torch models, other files here find what to quantize and write engine graphs.

Nothing is imported here: export needs torch, the rest do not.
"""
