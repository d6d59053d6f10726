"""`specbench profile show` and `diff`: stored profiles on stdout or in files, bad input in one line."""

from __future__ import annotations

import json
import re

import pytest
from cli.conftest import refused
from profile_samples import eagle_profile, fused_profile

from specbench.harness.profiling.profile_file import write_profile


@pytest.fixture
def stored(tmp_path):
    """A run directory with two arms' profiles."""
    for name, profile in (("eagle", eagle_profile()), ("fused", fused_profile())):
        folder = tmp_path / "run" / "profile" / name
        folder.mkdir(parents=True)
        write_profile(profile, folder)
    return tmp_path / "run"


def test_show_of_one_arm_from_its_folder_or_file(cli, stored):
    folder = stored / "profile" / "eagle"
    result = cli("profile", "show", folder)
    assert result.exit_code == 0 and result.stdout == cli("profile", "show", folder / "profile.json").stdout
    assert "Draft steps 1 to 3: 100% of 14 kernels each from a graph." in result.stdout


def test_show_of_a_run_has_all_arms(cli, stored):
    text = cli("profile", "show", stored).stdout
    assert "Arms side by side" in text and text.count("Graph certificate") == 2


def test_show_in_other_formats(cli, stored):
    folder = stored / "profile" / "eagle"
    assert cli("profile", "show", folder, "--format", "md").stdout.startswith("# Profile: eagle:k=4,sync=multi\n")
    assert cli("profile", "show", folder, "-f", "html").stdout.startswith("<!DOCTYPE html>")
    assert json.loads(cli("profile", "show", folder, "-f", "json").stdout)["schema"] == "specbench.profile/1"
    assert set(json.loads(cli("profile", "show", stored, "-f", "json").stdout)) == {
        "eagle:k=4,sync=multi",
        "naive-eagle:k=4",
    }


def test_the_json_of_a_profile_can_be_shown_again(cli, stored, tmp_path):
    folder = stored / "profile" / "eagle"
    again = tmp_path / "again.json"
    assert cli("profile", "show", folder, "-o", again).exit_code == 0
    assert cli("profile", "show", again).stdout == cli("profile", "show", folder).stdout


@pytest.mark.parametrize(("name", "start"), [("p.html", "<!DOCTYPE html>"), ("p.md", "# "), ("p.txt", "Profile: ")])
def test_the_name_of_the_output_tells_the_format(cli, stored, tmp_path, name, start):
    result = cli("profile", "show", stored / "profile" / "eagle", "-o", tmp_path / name)
    assert result.exit_code == 0 and result.stdout == "" and f"wrote {tmp_path / name}" in result.stderr
    assert (tmp_path / name).read_text().startswith(start)


def test_diff(cli, stored, tmp_path):
    sides = (stored / "profile" / "eagle", stored / "profile" / "fused" / "profile.json")
    assert re.search(r"^synchronisations a round +3.4 +0 +-3.4$", cli("profile", "diff", *sides).stdout, re.M)
    assert json.loads(cli("profile", "diff", *sides, "-f", "json").stdout)["schema"] == "specbench.profile-diff/1"
    assert cli("profile", "diff", *sides, "-o", tmp_path / "d.html").exit_code == 0
    assert "both on one scale" in (tmp_path / "d.html").read_text()


def test_diff_of_one_name_tells_the_sides_apart_by_path(cli, stored):
    folder = stored / "profile" / "eagle"
    assert f"A: eagle:k=4,sync=multi ({folder})" in cli("profile", "diff", folder, folder / "profile.json").stdout


def test_bad_input_is_one_line(cli, stored, tmp_path):
    folder = stored / "profile" / "eagle"
    refused(cli("profile", "show", tmp_path / "nothing"), "does not exist")
    refused(cli("profile", "show", tmp_path), "holds no profile.json", "specbench profile run")
    refused(cli("profile", "show", folder, "-f", "pdf"), "'pdf' is not known; allowed: table, md, json, html")
    refused(cli("profile", "diff", stored, folder), "holds 2 profiles", "give one arm's folder")
    refused(cli("profile", "show", folder, "-o", tmp_path / "no" / "p.md"), "output: cannot write to", "p.md: No such")


DAMAGED = {
    "no JSON": ("SQLite format 3\0", "profile.json: damaged", "specbench profile import"),
    "other schema": ('{"schema": "specbench.profile/99"}', "'specbench.profile/99'", "specbench.profile/1"),
    "list": ("[1, 2]", "not a JSON object"),
    "incomplete": ('{"schema": "specbench.profile/1"}', "missing required field `source`"),
    "wrong kind": ('{"schema": "specbench.profile/1", "source": 3}', "source: Expected `object`, got `int`"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_profile(cli, tmp_path, case):
    text, *words = DAMAGED[case]
    (tmp_path / "profile.json").write_text(text)
    refused(cli("profile", "show", tmp_path), *words)


@pytest.mark.parametrize(
    ("place", "named"), [((), "speed"), (("source",), "source.speed"), (("phases", 0), "phases.speed")]
)
def test_an_unknown_field_is_named(cli, stored, place, named):
    file = stored / "profile" / "eagle" / "profile.json"
    raw = table = json.loads(file.read_text())
    for name in place:
        table = table[name]
    table["speed"] = 1
    file.write_text(json.dumps(raw))
    refused(cli("profile", "show", file.parent), f"{named}: not known to this version")


@pytest.mark.parametrize("linked", ["profile", "profile/fused", "profile/fused/profile.json"])
def test_links_in_a_run_directory_are_not_followed(cli, stored, tmp_path, linked):
    (stored / linked).rename(tmp_path / "away")
    (stored / linked).symlink_to(tmp_path / "away")
    result = cli("profile", "show", stored)
    assert result.exit_code == 2 and f"{stored / linked}: is a symbolic link" in result.stderr
