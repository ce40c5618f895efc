"""The words of a refusal, for tests that look at all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tersely.errors import UserError


def refusal(call: Callable[..., Any], *args: Any, **options: Any) -> str:
    """What is said when a call is refused, in one line."""
    with pytest.raises(UserError) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
