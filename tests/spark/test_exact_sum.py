"""The kernel's sums of doubles: the true sum, rounded once, whatever the order and the grouping."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 1.7976931348623157e308
LEAST = 5e-324

# Bounded, so that no sum of a list leaves the range of a double: what happens there has tests of its own.
finite = st.floats(min_value=-1e300, max_value=1e300)
awkward = st.sampled_from(
    [
        0.0,
        -0.0,
        LEAST,
        -LEAST,
        2.2250738585072014e-308,
        1.0,
        -1.0,
        0.1,
        2.0**53,
        -(2.0**53) - 2,
        1e16,
        1e100,
        -1e100,
        1e300,
    ]
)
values = st.lists(st.one_of(finite, awkward), max_size=30)
few_calls = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Kernel:
    """The kernel's class, by Spark's own bridge."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._package = jvm.org.apache.spark.sql.headrace

    def sum(self, numbers: Sequence[float], *, squares: bool = False) -> Any:
        total = self._package.ExactSum()
        for number in numbers:
            total.addSquare(number) if squares else total.add(number)
        return total

    def stored(self, total: Any) -> Any:
        """What it is after it was written to the state and read back."""
        again = self._package.ExactSum()
        self.merge(again, total)
        return again

    def merge(self, total: Any, part: Any) -> None:
        """Adds one sum to another, as it is written to the state."""
        writer = self._package.ByteWriter(256)
        part.write(writer)
        total.mergeFrom(self._jvm.java.nio.ByteBuffer.wrap(writer.toBytes()))


@pytest.fixture(scope="module")
def kernel(spark: SparkSession) -> Kernel:
    return Kernel(spark)


def rounded(exact: Fraction) -> float:
    """A fraction as the nearest double."""
    return exact.numerator / exact.denominator


@few_calls
@given(numbers=values)
@example(numbers=[1e16, 1.0, -1e16])
@example(numbers=[1e100, 1.0, -1e100, LEAST])
@example(numbers=[0.1] * 10)
@example(numbers=[1.0, 2.0**-53, 2.0**-106])  # a tie that only the last part decides
@example(numbers=[1.0, 2.0**-53, -(2.0**-106)])
@example(numbers=[LEAST, -LEAST, LEAST])
@example(numbers=[2.0**1000, 2.0**947, LEAST])  # the least one decides between two neighbours
@example(numbers=[2.0**1000, 2.0**947, -LEAST])
def test_a_sum_equals_fsum_to_the_last_bit(kernel: Kernel, numbers: list[float]) -> None:
    assert kernel.sum(numbers).value() == math.fsum(numbers)


@few_calls
@given(numbers=values, seed=st.integers(0, 2**32))
def test_order_and_grouping_do_not_matter(kernel: Kernel, numbers: list[float], seed: int) -> None:
    rng = random.Random(seed)
    shuffled = rng.sample(numbers, len(numbers))
    total = kernel.sum([])
    at = 0
    while at < len(shuffled):
        size = rng.randrange(1, 8)
        kernel.merge(total, kernel.sum(shuffled[at : at + size]))
        at += size
    assert total.value() == math.fsum(numbers)


@few_calls
@given(
    numbers=st.lists(
        st.floats(min_value=-1e150, max_value=1e150).filter(lambda x: x == 0 or abs(x) > 1e-130), max_size=20
    )
)
def test_a_sum_of_squares_is_exact(kernel: Kernel, numbers: list[float]) -> None:
    total = kernel.sum(numbers, squares=True)
    assert total.value() == rounded(sum((Fraction(x) ** 2 for x in numbers), Fraction(0)))


@few_calls
@given(numbers=values)
def test_the_exact_sum_has_no_rounding_at_all(kernel: Kernel, numbers: list[float]) -> None:
    assert Fraction(kernel.sum(numbers).exact()) == sum(map(Fraction, numbers), Fraction(0))


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1e308], -math.inf),
        ([math.inf, math.inf], math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
        ([1.0, math.nan, math.inf], math.nan),
    ],
)
def test_infinities_and_nan_go_by_the_rules_of_floating_point(
    kernel: Kernel, numbers: list[float], expected: float
) -> None:
    for order in (numbers, numbers[::-1]):
        for total in (kernel.sum(order), kernel.stored(kernel.sum(order))):
            assert str(total.value()) == str(expected)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([MOST, MOST], math.inf), ([-MOST, -MOST, 1.0], -math.inf), ([MOST, MOST, -MOST], MOST), ([MOST] * 3, math.inf)],
    ids=["too large", "too small", "back in range", "three"],
)
def test_a_sum_beyond_the_range_does_not_depend_on_order_or_grouping_either(
    kernel: Kernel, numbers: list[float], expected: float
) -> None:
    for order in (numbers, numbers[::-1]):
        total = kernel.sum(order)
        merged = kernel.sum([])
        kernel.merge(merged, total)
        single = kernel.sum([])
        for number in order:
            kernel.merge(single, kernel.sum([number]))
        found = [each.value() for each in (total, merged, single, kernel.stored(total))]
        assert found == [expected] * 4
