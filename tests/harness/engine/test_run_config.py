"""Names and options as a user writes them: what is wrong is named, with what is allowed."""

from __future__ import annotations

import pytest

from specbench.harness.arms import resolve_arm
from specbench.harness.registry import ATTENTION_BACKENDS, STRATEGIES, WORKLOADS, lookup
from specbench.harness.run_config import RunConfig, parse_arm
from specbench.workloads.base import WorkloadRequest


@pytest.mark.parametrize("table", [STRATEGIES, ATTENTION_BACKENDS, WORKLOADS])
def test_every_registered_name_imports(table):
    for name in table:
        assert callable(lookup(table, name, "thing"))


def test_unknown_names_list_the_known_ones_and_the_nearest():
    with pytest.raises(
        ValueError, match=r"strategy: 'egale' is not known \(did you mean 'eagle'\?\); allowed: no-spec, "
    ):
        lookup(STRATEGIES, "egale", "strategy")
    with pytest.raises(ValueError, match="attention: 'zzz' is not known; allowed: torch"):
        lookup(ATTENTION_BACKENDS, "zzz", "attention")


def test_arms_split_engine_keys_from_the_strategys_own():
    arm = parse_arm(
        "eagle:k=4,head=/a/b,graph=one,status_lag=2", {"graph": "none", "sync": "single", "attention": None}
    )
    assert (arm.label, arm.strategy) == ("eagle:k=4,head=/a/b,graph=one,status_lag=2", "eagle")
    assert arm.options == {"k": "4", "head": "/a/b"}
    assert arm.engine == {"graph": "one", "sync": "single", "status_lag": "2"}, "the arm's own word counts"
    assert parse_arm("no-spec", {}).options == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eagle:k", "'k' is not key=value"),
        ("eagle:k=", "'k=' is not key=value"),
        ("eagle:k=1,k=2", "k is given twice"),
        ("eagle:graph=one,graph=none", "graph is given twice"),
    ],
)
def test_arms_that_cannot_be_read_are_refused(text, message):
    with pytest.raises(ValueError, match=f"strategy: '{text}': {message}"):
        parse_arm(text, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eagel", "did you mean 'eagle'"),
        ("eagle:depth=3", "eagle: unknown option 'depth'='3'; allowed: k, head"),
        ("no-spec:k=3", "no-spec: unknown option 'k'='3'; allowed: none"),
        ("eagle:k=four", "eagle: k='four' is not a whole number"),
        ("eagle:k=0", "eagle: k=0 is not allowed; allowed: 1 to 8"),
        ("naive-eagle:k=9", "naive-eagle: k=9 is not allowed; allowed: 1 to 8"),
        ("ngram:k=17", "ngram: k=17 is not allowed; allowed: 1 to 16"),
        ("ngram:min_n=4,max_n=3", "min_n=4, max_n=3 is not allowed"),
        ("ngram:min_n=0", "min_n=0, max_n=5 is not allowed"),
        ("eagle:graph=piecewise", "graph: 'piecewise': .*not implemented"),
        ("eagle:graph=two", "graph: 'two' is not known"),
        ("eagle:graph=one", "graph=one is refused: CUDA graphs need a CUDA device"),
        ("eagle:sync=none", "sync=none is refused"),
        ("eagle:drafter=unpadded", "drafter: 'unpadded': .*not implemented"),
        ("eagle:status_lag=x", "status_lag: 'x' is not a whole number"),
        ("eagle:status_lag=3", "status_lag is refused"),
        ("eagle:acceptance=high", "acceptance: 'high' is not known"),
        ("eagle:k=2,acceptance=synthetic:3.5", r"acceptance: .*allowed: 1 to k.1 = 3"),
    ],
)
def test_arms_are_checked_before_anything_is_loaded(text, message):
    with pytest.raises(ValueError, match=message):
        resolve_arm(parse_arm(text, {}), "cpu", synthetic_weights=False)


def test_a_resolved_arm_says_what_a_reader_of_its_row_must_know():
    arm = resolve_arm(parse_arm("eagle:k=2,acceptance=synthetic:2,graph=auto", {}), "cpu", synthetic_weights=True)
    assert arm.described()["num_drafts"] == 2 and arm.described()["acceptance"] == "synthetic:2"
    assert arm.described()["graph"] == "none" and arm.described()["status_lag"] == 0
    notes = "; ".join(arm.notes)
    assert "synthetic acceptance" in notes and "synthetic weights" in notes and "graph=auto chose none" in notes


def test_a_baseline_stays_real_under_a_global_acceptance():
    arm = resolve_arm(parse_arm("no-spec", {"acceptance": "synthetic:3"}), "cpu", synthetic_weights=False)
    assert arm.acceptance is None and arm.described()["acceptance"] == "real"


def _run_config(**changes) -> RunConfig:
    arms = changes.pop("arms", (parse_arm("no-spec", {}),))
    return RunConfig(arms=arms, workload=WorkloadRequest(name="random"), **changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(load_format="gguf"), "load_format: 'gguf'"),
        (dict(device="tpu"), "device: 'tpu'"),
        (dict(dtype="float16"), "dtype: 'float16' is not known; allowed: auto, bfloat16, float32"),
        (dict(max_concurrency=0), "max_concurrency: 0"),
        (dict(num_repeats=0), "num_repeats: 0"),
        (dict(max_num_batched_tokens=0), "max_num_batched_tokens: 0"),
        (dict(request_rate=0.0), "request_rate: 0.0"),
        (dict(request_rate=float("nan")), "request_rate: nan"),
        (dict(num_layers=2), "num_layers: needs --load-format dummy"),
        (dict(arms=()), "strategy"),
        (dict(arms=(parse_arm("ngram", {}), parse_arm("ngram", {}))), "every arm must differ"),
    ],
)
def test_run_configs_that_cannot_work_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        _run_config(**change)


def test_a_stored_config_comes_back_equal():
    config = _run_config(arms=(parse_arm("eagle:k=2", {"graph": "none"}), parse_arm("ngram", {})), request_rate=2.5)
    assert RunConfig.from_dict(config.to_dict()) == config
