"""Finds profiles in files and folders, and writes reports next to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from specbench.harness.profiling.profile_file import FILE, read_profile, to_json
from specbench.harness.profiling.record import Profile
from specbench.harness.store.files import write_text
from specbench.harness.store.safe_paths import path_inside
from specbench.reports.html import html_page
from specbench.reports.markdown import markdown_document
from specbench.reports.profile.report import profile_name, profiles_document
from specbench.reports.profile.trace import trace_json

HTML, MARKDOWN, PERFETTO = "profile.html", "profile.md", "trace.perfetto.json"


def read_profiles(path: Path) -> dict[str, Profile]:
    """Profiles by arm, from a profile.json, its folder, or a run directory with one per arm. ValueError if there is
    none."""
    if path.is_file():
        profile = _read(path)
        return {profile_name(profile): profile}
    if not path.is_dir():
        raise ValueError(f"profile: {path} does not exist; give a {FILE}, a folder that holds one, or a run directory")
    if (path / FILE).is_file():
        return read_profiles(path / FILE)
    folders = sorted({file.parent for pattern in (f"profile/*/{FILE}", f"*/{FILE}") for file in path.glob(pattern)})
    if not folders:
        raise ValueError(
            f"profile: {path} holds no {FILE}; make one with `specbench profile run` on a GPU, or `profile import`"
        )
    found = {f: _read(path_inside(path, (f / FILE).relative_to(path).as_posix(), "profile")) for f in folders}
    names = [profile_name(profile) for profile in found.values()]
    unique = len(set(names)) == len(names)
    return {name if unique else folder.name: found[folder] for folder, name in zip(folders, names, strict=True)}


def read_one_profile(path: Path) -> tuple[str, Profile]:
    """(name, profile). ValueError for a run directory with several: a comparison needs to know which."""
    profiles = read_profiles(path)
    if len(profiles) > 1:
        raise ValueError(
            f"profile: {path} holds {len(profiles)} profiles ({', '.join(profiles)}); give one arm's folder"
        )
    ((name, profile),) = profiles.items()
    return name, profile


def write_profile_reports(profiles: Mapping[str, Profile], directory: Path, title: str) -> list[Path]:
    """The page, the Markdown and the median rounds for Perfetto; returns the files written."""
    document = profiles_document(profiles, title)
    texts = {HTML: html_page(document), MARKDOWN: markdown_document(document), PERFETTO: trace_json(profiles)}
    for name, text in texts.items():
        write_text(directory / name, text)
    return [directory / name for name in texts]


def profiles_json(profiles: Mapping[str, Profile]) -> str:
    """The record of a single profile; for several, an object keyed by arm."""
    if len(profiles) == 1:
        return to_json(next(iter(profiles.values()))) + "\n"
    return "{" + ",\n".join(f"{json.dumps(name)}: {to_json(profile)}" for name, profile in profiles.items()) + "}\n"


def _read(path: Path) -> Profile:
    try:
        return read_profile(path)
    except ValueError as error:
        raise ValueError(f"{error} (to read a trace, use `specbench profile import`)") from error
