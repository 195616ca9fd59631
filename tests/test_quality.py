"""Measures against hand-worked values and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawq_flow.quality import accuracy, accuracy_error, auc, auc_error, explained_variance, reconstruction_errors


def test_accuracy_counts_the_first_of_equal_logits() -> None:
    assert accuracy([[1, 1], [0, 1], [2, 0]], [0, 1, 1]) == pytest.approx(2 / 3)
    assert accuracy_error(0.8, 1000) == pytest.approx(math.sqrt(0.8 * 0.2 / 1000))
    with pytest.raises(ValueError, match=r"accuracy: 2 samples with labels of shape \(3,\); expected one for each"):
        accuracy([[1, 0], [0, 1]], [0, 1, 1])
    with pytest.raises(ValueError, match="accuracy: no samples; expected at least one"):
        accuracy(np.zeros((0, 2)), np.zeros(0))


def test_explained_variance_by_hand() -> None:
    x = np.array([[0.0, 0.0], [2.0, 4.0]])
    assert explained_variance(x, x) == (1.0, 0.0)
    # By the mean of each element: nothing is explained. By 0: the error is 20, the variance 2 * (1 + 4) = 10.
    assert explained_variance(np.tile([1.0, 2.0], (2, 1)), x)[0] == 0.0
    assert explained_variance(np.zeros((2, 2)), x)[0] == -1.0
    assert explained_variance(np.array([[0.0, 1.0], [2.0, 4.0]]), x)[0] == pytest.approx(0.9)
    assert explained_variance(np.zeros((2, 2, 1)), x)[0] == -1.0  # any shape of as many values
    np.testing.assert_array_equal(reconstruction_errors(np.zeros((2, 2)), x), [0.0, 10.0])


def test_the_standard_error_is_that_of_repeated_samples() -> None:
    rng = np.random.default_rng(0)
    values, errors = [], []
    for _ in range(400):
        x = rng.standard_exponential((200, 3))
        value, error = explained_variance(0.6 * x + 0.1 * rng.normal(size=x.shape), x)
        values.append(value)
        errors.append(error)
    assert np.std(values) == pytest.approx(np.mean(errors), rel=0.15)


def test_what_cannot_be_explained_is_refused() -> None:
    with pytest.raises(ValueError, match="explained variance: all 3 samples are equal; expected samples that vary"):
        explained_variance(np.zeros((3, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="explained variance: no samples"):
        explained_variance(np.zeros((0, 2)), np.zeros((0, 2)))
    for shape in ((3, 3), (2, 2)):
        with pytest.raises(
            ValueError, match=r"reconstruction of shape .* of samples of shape \(3, 2\); expected as many"
        ):
            explained_variance(np.zeros(shape), np.ones((3, 2)))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_the_area_is_the_share_of_pairs_that_are_ordered(samples: list[tuple[int, bool]]) -> None:
    scores = np.array([s for s, _ in samples], dtype=float)
    positive = np.array([p for _, p in samples])
    if positive.all() or not positive.any():
        with pytest.raises(ValueError, match=r"auc: \d+ of \d+ samples are positive; expected some of both kinds"):
            auc(scores, positive)
        return
    pairs = [(p > n) + 0.5 * (p == n) for p in scores[positive] for n in scores[~positive]]
    assert auc(scores, positive) == pytest.approx(np.mean(pairs), abs=1e-12)


def test_the_areas_error_is_that_of_repeated_samples() -> None:
    rng = np.random.default_rng(1)
    flags = np.arange(120) < 40
    areas = [auc(rng.exponential(np.where(flags, 2.0, 1.0)), flags) for _ in range(400)]
    assert np.std(areas) == pytest.approx(auc_error(float(np.mean(areas)), 40, 80), rel=0.2)
    with pytest.raises(ValueError, match=r"auc: scores of shape \(3,\) and flags of shape \(2,\)"):
        auc([1, 2, 3], [True, False])
