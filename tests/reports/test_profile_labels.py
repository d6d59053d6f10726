"""Titles of arms: what differs, broken where a line may break."""

import pytest
from profile_samples import eagle_profile, fused_profile

from specbench.reports.html import html_page
from specbench.reports.profile.labels import arm_titles
from specbench.reports.profile.report import profiles_document


def test_what_all_arms_share_is_said_once():
    titles, shared = arm_titles(["no-spec", "eagle:k=4,head=random,sync=single", "naive-eagle:k=1,head=random"])
    assert titles == ("no-spec", "eagle: k=4, sync=single", "naive-eagle: k=1")
    assert shared == ("head=random",)


@pytest.mark.parametrize(
    ("labels", "titles"),
    [
        (["eagle:k=4,sync=single"], ("eagle: k=4, sync=single",)),
        (["EAGLE K=2, eager", "EAGLE K=3, eager"], ("EAGLE K=2, eager", "EAGLE K=3, eager")),
        (["trace.sqlite", "eagle-k=4-df35aa90"], ("trace.sqlite", "eagle-k=4-df35aa90")),
        (["eagle:k=4", "naive-eagle:k=4"], ("eagle", "naive-eagle")),
        (["eagle", "eagle:k=4", "naive-eagle:k=4"], ("eagle", "eagle: k=4", "naive-eagle: k=4")),
        (
            ["eagle:acceptance=measured:sharegpt,k=2", "eagle:acceptance=measured:sharegpt,k=3"],
            ("eagle: k=2", "eagle: k=3"),
        ),
    ],
)
def test_titles(labels, titles):
    assert arm_titles(labels)[0] == titles


def test_the_page_has_titles_and_whole_labels():
    page = html_page(
        profiles_document({"eagle:k=4,sync=multi": eagle_profile(), "naive-eagle:k=4": fused_profile()}, "Two arms")
    )
    assert ">eagle: sync=multi</a>" in page and ">naive-eagle</h2>" in page
    assert "All arms with options have k=4." in page
    assert "eagle:k=4,sync=multi</td>" in page  # as it is typed
