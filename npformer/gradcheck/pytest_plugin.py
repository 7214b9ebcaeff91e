"""The pytest fixture `gradcheck`. pytest finds it through the entry point of the package.

    @pytest.mark.gradcheck(directions=3)
    def test_linear(gradcheck):
        gradcheck(linear_forward, linear_backward, x, W)

The marker gives settings for all calls in a test. An argument of the call overrides the marker.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, so that pytest does not warn about it."""
    text = "gradcheck(**settings): settings for the fixture gradcheck, such as directions=3 or tolerance=1e-6"
    config.addinivalue_line("markers", text)


@pytest.fixture
def gradcheck(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that asserts gradients, like `npformer.assert_gradients`.

    Its random numbers depend on the name of the test. So they are the same in each run, and different in
    each test.
    """
    from npformer.gradcheck import assert_gradients

    settings: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("gradcheck"))):  # the closest marker comes last
        settings.update(marker.kwargs)

    def check(forward: Callable[..., Any], backward: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        rng = np.random.default_rng(list(request.node.name.encode()))
        assert_gradients(forward, backward, *args, **{"rng": rng, **settings, **kwargs})

    return check
