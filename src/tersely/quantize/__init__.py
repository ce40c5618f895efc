"""Integers for a graph: what is observed, how ranges, weights and roundings are chosen, and the `QuantMap`."""
