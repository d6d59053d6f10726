"""Names and options as a user writes them: what is wrong is named, with what is allowed."""

from __future__ import annotations

import pytest
from toy.engines import toy_target

from specbench.harness.engines.native.arms import resolve_arm
from specbench.harness.engines.native.build import build_engine, usual_mixed_chunk
from specbench.harness.engines.native.models.shapes import SHAPES
from specbench.harness.registry import ATTENTION_BACKENDS, STATE_UPDATES, STRATEGIES, WORKLOADS, lookup
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.store.codec import from_document, to_document
from specbench.kernels.state_update import StateUpdate
from specbench.kernels.torch_update import TorchStateUpdate


@pytest.mark.parametrize("table", [STRATEGIES, ATTENTION_BACKENDS, STATE_UPDATES, WORKLOADS])
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
    arm = parse_arm("eagle:k=4,head=/a/b,graph=one,status_lag=2", {"graph": "none", "sync": "single"})
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
        ("eagle:depth=3", "eagle: unknown option 'depth'='3'; allowed: k, k_table, head"),
        ("no-spec:k=3", "no-spec: unknown option 'k'='3'; allowed: none"),
        ("eagle:k=four", "eagle: k='four' is not a whole number; allowed: 1 to 8"),
        ("eagle:k=0", "eagle: k=0 is not allowed; allowed: 1 to 8"),
        ("naive-eagle:k=9", "naive-eagle: k=9 is not allowed; allowed: 1 to 8"),
        ("ngram:k=17", "ngram: k=17 is not allowed; allowed: 1 to 16"),
        ("ngram:min_n=4,max_n=3", "min_n=4, max_n=3 is not allowed"),
        ("ngram:min_n=0", "min_n=0, max_n=5 is not allowed"),
        ("eagle:graph=piecewise", "graph is refused: CUDA graphs need a CUDA device"),
        ("eagle:graph=two", "graph: 'two' is not known; allowed: auto, none, piecewise, full_decode_only"),
        ("eagle:graph=one", "graph is refused: CUDA graphs need a CUDA device"),
        ("eagle:graph_first=one", "graph: one captures the whole round; target=none, first=one, later=none"),
        ("eagle:graph_mixed=one", "graph_mixed: 'one' is not known; allowed: none, piecewise, full"),
        ("eagle:graph_later=some", "graph_later: 'some' is not known; allowed: none, piecewise, full, one"),
        ("eagle:graph_mixed=full", "graph is refused: CUDA graphs need a CUDA device"),
        ("eagle:attention_drafter=fa4", "attention_drafter: 'fa4' is not known; allowed: same, torch, triton"),
        ("eagle:attention_drafter=triton", "attention=triton is refused: the Triton kernels need a CUDA device"),
        ("eagle:state_update=slow", "state_update: 'slow' is not known; allowed: fused, torch"),
        ("eagle:sync=often", "sync: 'often' is not known; allowed: auto, multi, single, none"),
        ("eagle:sync=none", "sync=none is refused"),
        ("eagle:drafter=ragged", "drafter: 'ragged' is not known; allowed: padded, unpadded"),
        ("ngram:drafter=unpadded", "drafter=unpadded . no EAGLE chain is refused: only an EAGLE chain"),
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
    assert arm.setup().num_drafts == 2 and arm.setup().acceptance == "synthetic:2"
    assert arm.setup().graph == "none" and arm.setup().status_lag == 0
    notes = "; ".join(arm.notes)
    assert "synthetic acceptance" in notes and "synthetic weights" in notes and "graph=auto chose none" in notes


def test_every_switch_reaches_the_engine():
    """A word on the command line that no part of the engine reads would be measured under a false name."""
    words = "graph=none,sync=multi,attention=torch,attention_drafter=torch,drafter=unpadded,state_update=torch"
    resolved = resolve_arm(parse_arm(f"eagle:k=2,head=random,{words}", {}), "cpu", synthetic_weights=True)
    engine = build_engine(resolved, _run_config(max_concurrency=3), toy_target())
    assert (engine.config.sync, engine.config.drafter, engine.config.max_num_seqs) == ("multi", "unpadded", 3)
    assert isinstance(engine.builder.update, TorchStateUpdate) and engine.builder.multi_sync is not None
    fused = resolve_arm(parse_arm("eagle:k=2,head=random", {}), "cpu", synthetic_weights=True)
    engine = build_engine(fused, _run_config(), toy_target())
    assert type(engine.builder.update) is StateUpdate and engine.builder.multi_sync is None
    assert (engine.config.sync, engine.config.drafter) == ("single", "padded")


def test_steps_that_decode_take_fewer_prompt_tokens_with_larger_models():
    """From 8B on fewer than the 2,048 of a step."""
    names = "smollm2-135m", "llama-3.1-8b", "llama-2-70b"
    chunks, drafted = ({name: usual_mixed_chunk(SHAPES[name].config, k) for name in names} for k in (0, 4))
    assert chunks["smollm2-135m"] > 20_000 and 400 < chunks["llama-3.1-8b"] < 450 and chunks["llama-2-70b"] == 256
    help = Conditions.__dataclass_fields__["mixed_chunk_size"].metadata["option"].help
    assert f"(8B on one GPU: {chunks['llama-3.1-8b']}, with drafts {drafted['llama-3.1-8b']})" in help
    assert drafted["llama-2-70b"] == 256 and drafted["smollm2-135m"] > chunks["smollm2-135m"]
    target = toy_target()
    for words, k in (("no-spec", 0), ("ngram:k=2", 2)):
        arm = resolve_arm(parse_arm(words, {}), "cpu", synthetic_weights=True)
        usual, asked = (build_engine(arm, _run_config(**own), target) for own in ({}, {"mixed_chunk_size": 7}))
        assert usual.config.mixed_chunk_size == usual_mixed_chunk(target.config, k)
        assert asked.config.mixed_chunk_size == 7


def test_switches_of_a_drafter_do_not_concern_a_baseline():
    """Given for all arms, they must not refuse the arm that everything is compared with."""
    arm = resolve_arm(
        parse_arm("no-spec", {"drafter": "unpadded", "attention_drafter": "triton"}), "cpu", synthetic_weights=False
    )
    assert arm.setup().drafter is None and arm.setup().attention_drafter is None


def test_a_baseline_stays_real_under_a_global_acceptance():
    arm = resolve_arm(parse_arm("no-spec", {"acceptance": "synthetic:3"}), "cpu", synthetic_weights=False)
    assert arm.acceptance is None and arm.setup().acceptance == "real"


def _run_config(**changes) -> RunConfig:
    arms = changes.pop("arms", (parse_arm("no-spec", {}),))
    return RunConfig(arms=arms, **{"dataset_name": "random", **changes})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(load_format="gguf"), "load_format: 'gguf'"),
        (dict(device="tpu"), "device: 'tpu'"),
        (dict(dtype="float16"), "dtype: 'float16' is not known; allowed: auto, bfloat16, float32"),
        (dict(max_concurrency=0), "max_concurrency: 0"),
        (dict(num_repeats=0), "num_repeats: 0"),
        (dict(max_num_batched_tokens=0), "max_num_batched_tokens: 0"),
        (dict(mixed_chunk_size=-1), "mixed_chunk_size: -1"),
        (dict(request_rate=0.0), "request_rate: 0.0"),
        (dict(request_rate=float("nan")), "request_rate: nan"),
        (dict(num_layers=2), "num_layers: needs --load-format dummy"),
        (dict(arms=()), "strategy"),
        (dict(arms=(parse_arm("ngram", {}), parse_arm("ngram", {}))), "label: 'ngram' is given to two arms"),
    ],
)
def test_run_configs_that_cannot_work_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        _run_config(**change)


def test_a_stored_config_comes_back_equal():
    config = _run_config(arms=(parse_arm("eagle:k=2", {"graph": "none"}), parse_arm("ngram", {})), request_rate=2.5)
    assert from_document(RunConfig, to_document(config), "config") == config
