"""Every tier: hypothesis profiles (AIOKQ_HYPOTHESIS_PROFILE=torture for the long runs)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "torture", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("AIOKQ_HYPOTHESIS_PROFILE", "default"))
