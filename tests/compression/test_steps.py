"""The table of steps holds together with the options and with what can be done with fewer rows."""

from __future__ import annotations

from tersely.options.compress import OPTIONS
from tersely.strategy import DEMANDS, STEPS, Plan, parse


def test_options_name_steps_that_exist_each_once() -> None:
    for option in OPTIONS.values():
        assert len(set(option.steps)) == len(option.steps)
        assert set(option.steps) <= set(STEPS)


def test_what_trains_has_losses_that_are_options_and_needs_rows_to_score_on() -> None:
    for name, step in STEPS.items():
        assert all(name in OPTIONS[loss].steps for loss in step.losses)
        assert bool(step.losses) == (step.needs == DEMANDS[-1])


def test_what_makes_another_model_cannot_start_from_a_graph() -> None:
    assert not any(step.takes_graph and (step.prunes or step.losses) for step in STEPS.values())


def test_without_train_rows_a_plan_keeps_what_a_graph_can_have() -> None:
    plan = parse("prune_embeddings+dynabert+ptq+embeddings")
    assert Plan(plan.without_train_rows) == parse("ptq+embeddings")
    assert not Plan(plan.without_train_rows).reads_train_rows
