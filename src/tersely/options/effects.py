"""Options of `tersely compress` together: which plans really run, and what has no effect refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from ..engines import ENGINES, installed
from ..errors import UserError, missing_package, wrong_option
from ..strategy import AT_RUN_TIME, DYNABERT, DYNAMIC, MOVING, PRUNE, PTQ, QAT, STEPS, TRAINED, Plan
from .compress import OPTIONS, CompressOptions
from .data import DataOptions
from .option import Option, options_of


def resolve(options: CompressOptions, plans: Sequence[Plan]) -> tuple[tuple[Plan, ...], tuple[str, ...]]:
    """The plans that really run, and notes on those that are not what their name says.

    >>> from tersely.strategy import parse_all
    >>> plans, notes = resolve(CompressOptions(activation_quantize_type="abs_max"), parse_all("ptq"))
    >>> plans[0].name, notes[0]
    ('dynamic', "ptq runs as dynamic: with '--activation_quantize_type abs_max' ranges are taken at run time.")
    """
    because = f"with '--activation_quantize_type {AT_RUN_TIME}' ranges are taken at run time"
    notes, running = [], []
    for plan in plans:
        real, at_run_time = plan, options.activation_type(plan) == AT_RUN_TIME
        if plan.quantizer == PTQ and at_run_time:
            real = plan.with_quantizer(DYNAMIC)
            notes.append(f"{plan.name} runs as {real.name}: {because}.")
        if plan.quantizer == QAT and at_run_time:
            notes.append(f"{plan.name} is exported as the graph of dynamic: {because}, and no clip is learnt.")
        running.append(real)
    return tuple(dict.fromkeys(running)), tuple(notes)


def check(
    options: CompressOptions,
    plans: Sequence[Plan],
    set_names: AbstractSet[str],
    *,
    scored: bool = True,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> None:
    """Refuse, by name, options that cannot have an effect together with the others.

    `set_names`: the names that the user set. `scored`: whether there are labelled eval rows. `bounds`: the metric's.

    >>> from tersely.strategy import parse_all
    >>> check(CompressOptions(smooth=0.5), parse_all("dynamic"), {"smooth"})
    Traceback (most recent call last):
    tersely.errors.UserError: The 'smooth' option (0.5) has no effect with the strategy 'dynamic'. It is for ptq or qat.
    """
    _check_effect(options, plans, set_names)
    _check_pruning(options, plans, set_names, scored)
    if "calibration_rows" in set_names and (options.batch_size_list or options.batch_num_list):
        _refuse("calibration_rows", "beside --batch_size_list and --batch_num_list, which say how many rows")
    if "moving_rate" in set_names and not any(options.activation_type(plan) == MOVING for plan in plans):
        _refuse("moving_rate", f"without --activation_quantize_type {MOVING}")
    clipped = [plan for plan in plans if touches("use_pact", [plan]) and options.activation_type(plan) != AT_RUN_TIME]
    if "use_pact" in set_names and options.use_pact and not clipped:
        _refuse("use_pact", f"with --activation_quantize_type {AT_RUN_TIME}, which clips nothing")
    if "origin_tolerance" in set_names and options.origin_metric is None:
        _refuse("origin_tolerance", "without --origin_metric")
    if not scored:
        for name in ("origin_metric", "max_drop"):
            if getattr(options, name) is not None:
                _refuse(name, "without labelled rows to score on", "Name them with --eval_file.")
    _check_fractions(options, bounds)
    if options.input_infer_model_path is not None:
        if "input_dtype" in set_names:
            _refuse("input_dtype", "with --input_infer_model_path: that graph has its own")
        _check_graph_steps(plans, set_names)
    for engine in options.engines or ():
        if engine not in installed():
            raise missing_package(ENGINES[engine].packages[0], f"--engines {engine}", ENGINES[engine].extra)


def _check_pruning(options: CompressOptions, plans: Sequence[Plan], set_names: AbstractSet[str], scored: bool) -> None:
    """Refuse what cannot be where models are pruned to order."""
    pruned = [plan for plan in plans if PRUNE in plan.steps]
    if options.searches and not scored:
        what = (
            f"'{' '.join(options.strategy)}' looks for the speed that the score allows, and needs eval rows for that."
        )
        raise UserError(what, hint="Name them with --eval_file, or say how fast: --target_speedup.", option="eval_file")
    if pruned and options.target_speedup is None and options.max_drop is None and not options.is_auto:
        what = f"The strategy '{pruned[0].name}' needs to know how far to prune."
        hint = "Say how fast with --target_speedup 4, or how much the score may drop with --max_drop 0.01."
        raise UserError(what, hint=hint, option="target_speedup")
    if pruned and all(PRUNE in plan.steps for plan in plans if DYNABERT in plan.steps):
        for name in ("width_mult_list", "depth_mult_list", "importance", "importance_rows"):
            if name in set_names:
                _refuse(name, f"with the strategy '{pruned[0].name}', whose shapes come from measured times")


def _check_graph_steps(plans: Sequence[Plan], set_names: AbstractSet[str]) -> None:
    *firsts, last = (name for name, step in STEPS.items() if step.takes_graph)
    for plan in plans:
        for step in plan.steps:
            if not STEPS[step].takes_graph:
                what = f"The step '{step}' needs a model folder, not a bare graph (--input_infer_model_path)."
                unset = (
                    "" if "strategy" in set_names else f" The default is '{plan.name}': write --strategy {firsts[0]}."
                )
                raise UserError(what, hint=f"A bare graph can have {', '.join(firsts)} and {last}.{unset}")


def _check_effect(options: CompressOptions, plans: Sequence[Plan], set_names: AbstractSet[str]) -> None:
    running, _ = resolve(options, plans)
    steps = {step for plan in running for step in plan.steps}
    strategies = " or ".join(f"'{plan.name}'" for plan in plans)
    changed = running != tuple(plans) and DYNAMIC not in {plan.quantizer for plan in plans}
    for name, option in options_of(type(options)).items():
        value = getattr(options, name)
        if name in set_names and value != option.idle and not option.acts_on(steps):
            because = f"with the strategy {strategies}"
            if changed and PTQ in option.steps:
                because = f"with --activation_quantize_type {AT_RUN_TIME}, which is the graph of dynamic"
            _refuse(name, because, f"It is for {' or '.join(sorted(option.steps))}.", value)
    if options.skip_layers == ("auto",) and not any(plan.calibrates for plan in running):
        hint = "Name patterns: auto is for ptq and qat."
        _refuse("skip_layers", f"with the strategy {strategies}", hint, options.skip_layers)
    if "distill_temperature" in set_names and options.distill_logits == 0:
        _refuse("distill_temperature", "with --distill_logits 0")
    distils = any(options.distils(step) for step in options.trained())
    if options.teacher_model_name_or_path is not None and not distils:
        _refuse("teacher_model_name_or_path", "with --distill_hidden 0 and --distill_logits 0")


def check_training(training: Mapping[str, Any], plans: Sequence[Plan]) -> None:
    """Refuse, by name, options of training where no plan trains; that no GPU is used is true anyway."""
    names = [name for name, value in training.items() if (name, value) != ("device", "cpu")]
    if names and not trains(plans):
        strategies = " or ".join(f"'{plan.name}'" for plan in plans)
        _refuse(names[0], f"with the strategy {strategies}", f"It is for {' and '.join(TRAINED)}.")


def check_unlabelled(
    options: CompressOptions, plans: Sequence[Plan], *, train: bool, name: str = "unlabelled_file"
) -> None:
    """Refuse rows without labels where no plan looks at them. `train`: whether there are training rows beside.

    >>> from tersely.strategy import parse_all
    >>> check_unlabelled(CompressOptions(strategy="dynamic"), parse_all("dynamic"), train=False)
    Traceback (most recent call last):
    tersely.errors.UserError: The 'unlabelled_file' option has no effect with the strategy 'dynamic'. It is for \
dynabert or prune or prune_embeddings or ptq or qat.
    """
    takers = set(options_of(DataOptions)["unlabelled_file"].steps)
    running, _ = resolve(options, plans)
    steps = {step for plan in running for step in plan.steps} & takers
    strategies = " or ".join(f"'{plan.name}'" for plan in plans)
    if not steps:
        _refuse(name, f"with the strategy {strategies}", f"It is for {' or '.join(sorted(takers))}.")
    if not train:
        return
    if steps == {PTQ}:
        _refuse(name, f"with the strategy {strategies} beside training rows, which calibrate")
    if steps <= {PTQ, *TRAINED} and not any(options.distils(step) for step in steps & set(TRAINED)):
        _refuse(name, "with --distill_hidden 0 and --distill_logits 0: what learns from labels alone needs labels")


def trains(plans: Sequence[Plan]) -> bool:
    """Whether any of the plans trains, so that options of training have an effect."""
    return any(plan.trained for plan in plans)


def touches(name: str, plans: Sequence[Plan], options: Mapping[str, Option] = OPTIONS) -> bool:
    """Whether an option has an effect on any of the plans, as far as the steps alone can tell.

    >>> from tersely.strategy import parse_all
    >>> touches("algo_list", parse_all("dynamic")), touches("seed", parse_all("dynamic"))
    (False, True)
    """
    return name not in options or options[name].acts_on({step for plan in plans for step in plan.steps})


def _refuse(name: str, because: str, hint: str = "Leave it out.", value: Any = None) -> None:
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
    said = "" if value is None else f" ({shown})"
    raise UserError(f"The '--{name}' option{said} has no effect {because}.", hint=hint, option=name)


def _check_fractions(options: CompressOptions, bounds: tuple[float, float]) -> None:
    low, high = bounds
    limits = {"origin_metric": (low, high), "max_drop": (0.0, high), "origin_tolerance": (0.0, high)}
    for name, (least, most) in limits.items():
        value = getattr(options, name)
        # A drop of 100 points cannot be passed: who writes 1 means one point.
        beyond = value is not None and (not least <= value <= most or (name != "origin_metric" and value == most))
        if beyond:
            upper = "" if math.isinf(most) else f" to {most:g}" if name == "origin_metric" else f" to below {most:g}"
            points = most == 1 and 1 <= value <= 100
            hint = f"Scores are fractions: {value:g} in points is {value / 100:g}." if points else None
            raise wrong_option(name, f"must be from {least:g}{upper}. Got {value:g}.", hint=hint)
