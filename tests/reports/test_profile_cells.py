import pytest

from specbench.reports.profile.cells import count, kernel_name, microseconds, phase_name, points, share


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
    ("ns", "text"), [(None, "-"), (1050.0, "1.05"), (31_200.0, "31.2"), (1_234_567.0, "1235"), (-900, "-0.90")]
)
def test_microseconds(ns, text):
    assert microseconds(ns) == text


def test_points():
    assert (points(0.125), points(-1.0), points(0.0), points(None)) == ("+12.5 pt", "-100.0 pt", "0 pt", "-")


def test_names():
    assert (phase_name("draft", 0), phase_name("verify", None)) == ("draft step 0", "verify")
    assert kernel_name("void f<int (*)(int), 3>(Params<int(4)>, float)") == "f<int (*)(int), 3>"
    assert kernel_name("Memcpy DtoH (Device -> Pageable)") == "Memcpy DtoH (Device -> Pageable)"
    assert kernel_name("(anonymous)") == "(anonymous)"
    long = kernel_name("x" * 90 + "y" * 90)
    assert len(long) == 100 and long.startswith("x" * 70 + "…") and long.endswith("y" * 29)
