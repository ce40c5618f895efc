"""The table of engines holds together: what one entry says leaves no gap beside the others."""

from __future__ import annotations

from tersely.engines import CLASSES, ENGINES, GRAPH_ENGINES, REFERENCE


def test_every_class_ranks_every_graph_engine_in_fp32_and_int8_once():
    wanted = {(precision, name) for name in GRAPH_ENGINES for precision in ("fp32", "int8")}
    for cpu_class in CLASSES:
        ranks = {
            (precision, name): by_class[cpu_class]
            for name, facts in ENGINES.items()
            for precision, by_class in facts.ranks.items()
        }
        assert set(ranks) == wanted
        assert sorted(ranks.values()) == list(range(len(wanted)))  # no two are equal: the order is not the table's


def test_an_engine_ranks_only_what_it_offers():
    assert all(set(facts.ranks) <= set(facts.precisions) for facts in ENGINES.values())


def test_engines_that_run_graphs_can_serve_and_the_others_run_no_int8():
    for facts in ENGINES.values():
        assert (facts.costs is not None) == facts.runs_graphs == ("int8" in facts.precisions)
        assert facts.runs_graphs or not (facts.fuses_int8 or facts.int8_attention)


def test_the_reference_runs_graphs_in_the_base_install():
    assert REFERENCE in GRAPH_ENGINES
    assert ENGINES[REFERENCE].extra is None
