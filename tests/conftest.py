"""One thread for every numeric library (set before torch is imported), and one Hypothesis profile for all tests."""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

torch.set_num_threads(1)
# Tests must not depend on the machine's speed or on chance: no deadlines, and the same examples every time.
settings.register_profile(
    "hawq_flow",
    deadline=None,
    derandomize=True,
    max_examples=50,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("hawq_flow")
