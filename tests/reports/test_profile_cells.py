import pytest

from specbench.reports.cells import share
from specbench.reports.profile.cells import (
    MICROSECONDS,
    count,
    duration,
    kernel_name,
    phase_name,
    points,
    times,
    unit_of,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0%"),
        (0.0001, "<0.1%"),
        (0.034, "3.4%"),
        (0.5, "50%"),
        (0.9992, ">99.9%"),
        (0.999999, ">99.9%"),
        (1.0, "100%"),
    ],
)
def test_a_share_is_all_or_nothing_only_where_it_is(value, text):
    assert share(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0, "0"), (28.0, "28"), (3.4, "3.4"), (0.001, "<0.01"), (1.666, "1.67")]
)
def test_counts(value, text):
    assert count(value) == text


def test_signed_counts():
    assert (count(-3.4, signed=True), count(2.0, signed=True), count(0.0, signed=True)) == ("-3.4", "+2", "0")


@pytest.mark.parametrize(
    ("ns", "text"),
    [(None, "-"), (1050.0, "1.05"), (31_200.0, "31.2"), (1_234_567.0, "1,235"), (9_999_000, "9,999"), (-900, "-0.90")],
)
def test_microseconds(ns, text):
    assert MICROSECONDS.text(ns) == text and unit_of([ns]) is MICROSECONDS


def test_durations_of_10_000_microseconds_and_more_are_milliseconds():
    found = [duration(ns) for ns in (None, 31_200.0, 9_999_000.0, 10_000_000.0, 1_229_250_000.0, -10_000_000.0)]
    assert found == ["-", "31.2 µs", "9,999 µs", "10.0 ms", "1,229 ms", "-10.0 ms"]


def test_a_column_has_the_unit_of_its_longest_duration():
    rows = [1_229_250_000.0, 5_000.0, None, 2_500_000.0]
    ((header, cell),) = times("host {}", lambda ns: ns, rows).items()
    assert (header, [cell(ns) for ns in rows]) == ("host ms", ["1,229", "0.005", "-", "2.50"])
    assert list(times("host {}", lambda ns: ns, rows[1:])) == ["host µs"]


def test_points():
    assert (points(0.125), points(-1.0), points(0.0), points(None)) == ("+12.5 pt", "-100.0 pt", "0 pt", "-")


def test_names():
    assert (phase_name("draft", 0), phase_name("verify", None)) == ("draft step 0", "verify")
    assert kernel_name("void f<int (*)(int), 3>(Params<int(4)>, float)") == "f<int (*)(int), 3>"
    assert kernel_name("Memcpy DtoH (Device -> Pageable)") == "Memcpy DtoH (Device -> Pageable)"
    assert kernel_name("(anonymous)") == "(anonymous)"
    long = kernel_name("x" * 90 + "y" * 90)
    assert len(long) == 100 and long.startswith("x" * 70 + "…") and long.endswith("y" * 29)
