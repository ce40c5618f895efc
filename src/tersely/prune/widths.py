"""Which widths and depths are made, and the other options of width pruning, checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

from ..errors import UserError, nearest
from ..models.carve import Shape, shape_for
from ..training.losses import LossSettings

IMPORTANCE = ("labels", "teacher")


@dataclass(frozen=True)
class Target:
    """A network to be made: the width and depth asked for, and the shape that they come to."""

    name: str
    width: Fraction
    depth: Fraction
    shape: Shape


@dataclass(frozen=True)
class PruneSettings(LossSettings):
    """The options of `dynabert`, each by its name.

    Widths and depths may be given as texts, numbers or fractions; they are kept as fractions, exactly as written.

    >>> PruneSettings(width_mult_list=["3/4", 0.5]).width_mult_list
    (Fraction(3, 4), Fraction(1, 2))
    >>> PruneSettings(width_mult_list="5/4")
    Traceback (most recent call last):
    tersely.errors.UserError: The 'width_mult_list' option must hold fractions in (0, 1]. Got '5/4'.
    """

    width_mult_list: tuple[Fraction, ...] = (Fraction(3, 4),)
    depth_mult_list: tuple[Fraction, ...] = (Fraction(1),)
    distill_hidden: float = field(default=0.1, kw_only=True)
    importance: str = "labels"
    importance_rows: int = 512
    reorder: bool = True
    """False shows what training gives without the order of importance: for benchmarks."""

    def __post_init__(self) -> None:
        for name in ("width_mult_list", "depth_mult_list"):
            object.__setattr__(self, name, parse_shares(getattr(self, name), name))
        if isinstance(self.teacher, str):
            object.__setattr__(self, "teacher", Path(self.teacher))
        super().__post_init__()
        if self.importance not in IMPORTANCE:
            what = f"The 'importance' option must be labels or teacher. Got '{self.importance}'."
            raise UserError(what, hint=nearest(str(self.importance), IMPORTANCE))
        if self.criterion is not None and not self.needs_labels:
            hint = "It is for 'importance' labels and for 'label_loss'."
            raise UserError("The 'criterion' option has no effect where no labels are asked for.", hint=hint)
        if isinstance(self.importance_rows, bool) or not isinstance(self.importance_rows, int):
            raise UserError(f"The 'importance_rows' option must be a whole number. Got {self.importance_rows!r}.")
        if self.importance_rows < 1:
            raise UserError(f"The 'importance_rows' option must be at least 1. Got {self.importance_rows}.")

    @property
    def needs_labels(self) -> bool:
        """Whether training rows must carry labels; without, any text will do."""
        return self.label_loss > 0 or (self.importance == "labels" and self.reorder)

    def targets(self, full: Shape) -> tuple[tuple[Target, ...], tuple[str, ...]]:
        """The networks to make of a model of this shape, and a note on each that another one makes already.

        >>> made, notes = PruneSettings(width_mult_list="3/4 0.74").targets(Shape((4,), (64,), (0,)))
        >>> [target.name for target in made], notes
        (['width_mult_0.75'], ('width_mult_0.74 has the shape of width_mult_0.75: made once.',))
        """
        made: dict[Shape, Target] = {}
        notes = []
        for depth, width in product(self.depth_mult_list, self.width_mult_list):
            target = Target(target_name(width, depth), width, depth, shape_for(full, width, depth))
            if target.shape in made:
                notes.append(f"{target.name} has the shape of {made[target.shape].name}: made once.")
            made.setdefault(target.shape, target)
        return tuple(made.values()), tuple(notes)

    def as_json(self) -> dict[str, Any]:
        """Plain types; a function by its name."""
        shares = {
            name: [str(share) for share in getattr(self, name)] for name in ("width_mult_list", "depth_mult_list")
        }
        return {**super().as_json(), **shares}


def parse_shares(shares: Any, option: str) -> tuple[Fraction, ...]:
    """Read fractions or decimals: a text with blanks between them, one number, or several of either.

    >>> parse_shares("3/4 2/3", "width_mult_list")
    (Fraction(3, 4), Fraction(2, 3))
    """
    if isinstance(shares, str):
        shares = shares.split()
    words = list(shares) if isinstance(shares, Iterable) else [shares]
    found: list[Fraction] = []
    for word in words:
        share = _parse(word, option)
        if share in found:
            raise UserError(f"The '{option}' option holds '{word}' twice.", hint="Leave one of them out.")
        found.append(share)
    if not found:
        raise UserError(f"The '{option}' option holds nothing.", hint="Give fractions such as 3/4.")
    return tuple(found)


def target_name(width: Fraction, depth: Fraction = Fraction(1)) -> str:
    """Name a folder: decimals where these are exact, else numerator and denominator.

    >>> target_name(Fraction(3, 4)), target_name(Fraction(2, 3), Fraction(1, 2))
    ('width_mult_0.75', 'width_mult_2_3-depth_mult_0.5')
    """
    return f"width_mult_{_shown(width)}" + ("" if depth == 1 else f"-depth_mult_{_shown(depth)}")


def _parse(word: Any, option: str) -> Fraction:
    try:
        if isinstance(word, bool):
            raise ValueError
        # A float is the decimal that it prints as: 0.1 is one tenth, not the nearest binary fraction.
        share = Fraction(word if isinstance(word, Fraction | int) else str(word))
    except (ValueError, ZeroDivisionError):
        hint = "Write them as 3/4 or 0.75."
        raise UserError(f"The '{option}' option must hold fractions in (0, 1]. Got '{word}'.", hint=hint) from None
    if not 0 < share <= 1:
        raise UserError(f"The '{option}' option must hold fractions in (0, 1]. Got '{word}'.")
    return share


def _shown(share: Fraction) -> str:
    rest = share.denominator
    for factor in (2, 5):
        while rest % factor == 0:
            rest //= factor
    if rest != 1:
        return f"{share.numerator}_{share.denominator}"
    with localcontext(prec=400):
        return format((Decimal(share.numerator) / Decimal(share.denominator)).normalize(), "f")
