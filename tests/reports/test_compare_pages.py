"""`make pages`: what differs between two drawn sites, and what is said where there is nothing to compare."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
_SPEC = importlib.util.spec_from_file_location("compare_pages", ROOT / ".ci" / "compare_pages.py")
assert _SPEC is not None and _SPEC.loader is not None
pages = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(pages)


def box(width: int, height: int, *red: tuple[int, int, int, int], shade: int = 255) -> Image.Image:
    image = Image.new("RGB", (width, height), (shade,) * 3)
    for corners in red:
        image.paste((200, 0, 0), corners)
    return image


def test_the_share_of_pixels_that_differ():
    white = box(10, 10)
    assert pages.difference(white, box(10, 10))[0] == 0
    assert pages.difference(white, box(10, 10, shade=250))[0] == 0, "smoothed edges"
    share, shown = pages.difference(white, box(10, 10, (0, 0, 5, 2)))
    assert share == 0.1 and shown.getpixel((4, 1)) == (220, 0, 0) and shown.getpixel((9, 9)) == (255, 255, 255)


def test_what_only_one_of_both_has_differs():
    share, shown = pages.difference(box(10, 10), box(10, 20))
    assert share == 0.5 and shown.size == (10, 20) and shown.getpixel((0, 15)) == (220, 0, 0)
    assert pages.difference(box(10, 20), box(10, 10))[0] == 0.5


def test_two_drawn_sites(browser, tmp_path, capsys):
    for side, text in (("before", "one"), ("after", "two")):
        (tmp_path / side / "runs").mkdir(parents=True)
        for page, words in (("index", text), ("same", "the same"), ("runs/a", "a"), ("runs/b", "b"), ("runs/c", "c")):
            (tmp_path / side / f"{page}.html").write_text(f"<meta charset=utf-8><p>{words}</p>")
    (tmp_path / "after/new.html").write_text("new")
    (tmp_path / "after/broken.html").write_text("<script>throw new Error('no data')</script>")
    failed = pages.compare_sites(browser, tmp_path / "before", tmp_path / "after", tmp_path / "out")
    lines = [line.split(maxsplit=2)[2] for line in capsys.readouterr().out.splitlines()]
    said = {line.split()[-1]: line for line in lines}
    assert said["index.html"].split()[1] == "differ" and said["same.html"].startswith("the same")
    assert "before: is not there" in said["new.html"] and "no data" in said["broken.html"]
    assert set(said) == {"index.html", "same.html", "new.html", "broken.html", "runs/a.html", "runs/b.html"}
    assert set(failed) == {"broken.html"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["index.html-1440.png", "index.html-420.png"]


def test_a_clone_without_a_parent_says_so(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/compare_pages.py", tmp_path / ".ci")
    done = subprocess.run([sys.executable, tmp_path / ".ci/compare_pages.py"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("\n") == 1 and "no parent commit" in done.stdout
