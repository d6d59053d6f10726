"""Recipes and bases: what ships is whole and legal, what a user writes wrongly is named, what is typed wins."""

from __future__ import annotations

import functools

import pytest

from specbench.harness.engines.native.arms import resolve_arm
from specbench.harness.run.prepare import arm_check
from specbench.harness.spec import legality
from specbench.harness.spec.ablation import ablate, parse_ablations
from specbench.harness.spec.arm import Switches, parse_arm, with_switches
from specbench.harness.spec.measured_acceptance import find_measured, measured_acceptances, with_measured_rates
from specbench.harness.spec.options import RunOptions
from specbench.harness.spec.plan import acceptance_note, recipe_arms
from specbench.harness.spec.recipe_files import base_summaries, load_base, load_recipe, recipe_names, recipe_summaries
from specbench.reports.run.recipe_table import check_columns

OPTIONS = {name: said for name, said in RunOptions.schema().items() if said.group not in ("Arms", "Output")}
NAMES = ["sglang-pr-6995", "sglang-pr-6995-one-gpu", "vllm-pr-20078", "vllm-pr-25196", "vllm-pr-34880"]
IN_OTHERS = [
    "sglang-pr-6995-in-sglang",
    "vllm-pr-25196-in-vllm",
    "vllm-pr-34880-in-vllm",
]  # rows of the engines themselves, beside ours


@pytest.fixture
def a_gpu_with_everything(monkeypatch, tmp_path):
    """As the legality table sees a CUDA device with all packages."""
    library = tmp_path / "fa3.so"
    library.touch()
    monkeypatch.setenv("FA3_SO", str(library))
    monkeypatch.setattr(legality, "_has", lambda package: True)


def write(tmp_path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


# -- what ships ------------------------------------------------------------------------------------------------------


def test_every_seed_has_a_recipe_with_a_line_about_it():
    assert recipe_names() == sorted([*NAMES, *IN_OTHERS])
    assert all(recipe_summaries().values()) and set(base_summaries()) == {"vllm-0.9", "best"}


@pytest.mark.parametrize("name", [*NAMES, *IN_OTHERS])
def test_shipped_recipes_are_whole(name):
    recipe = load_recipe(name, OPTIONS)
    assert recipe.summary and recipe.report.title and recipe.report.notes and recipe.report.claim["source"]
    assert recipe.arms[0].baseline, "rows above the first baseline would be compared with nothing"
    assert len({each.arm.label for each in recipe.arms}) == len(recipe.arms)
    check_columns(recipe.report.columns)
    claimed = {f"claim:{key}" for each in recipe.arms for key in each.claim}
    assert claimed and claimed <= set(recipe.report.columns), "a claim that no column shows"


@pytest.mark.parametrize("name", NAMES)
def test_every_arm_of_a_shipped_recipe_is_legal_on_a_gpu(name, a_gpu_with_everything):
    options = RunOptions.of({"recipe": name})
    arms, record = recipe_arms(options.file, options, arm_check(options))
    assert not record.notes, "two arms that are the same"
    for arm in arms:
        arm = resolve_arm(arm, "cuda", synthetic_weights=True)
        assert (arm.acceptance is None) == (arm.strategy.num_drafts == 0)


@pytest.mark.parametrize("name", IN_OTHERS)
def test_rows_of_another_engine_and_ours_are_different_arms(name, a_gpu_with_everything):
    options = RunOptions.of({"recipe": name})
    arms, record = recipe_arms(options.file, options, arm_check(options))
    assert not record.notes and {arm.engine_name for arm in arms} == {"", name.rpartition("-")[2]}
    for arm in arms:
        if not arm.engine_name:
            resolve_arm(arm, "cuda", synthetic_weights=True)


def test_the_rows_of_20078_differ_in_what_their_names_say():
    arms = [each.arm for each in load_recipe("vllm-pr-20078", OPTIONS).arms]
    switches = [tuple(arm.engine[key] for key in ("state_update", "sync", "drafter")) for arm in arms]
    assert switches == [
        ("torch", "multi", "unpadded"),
        ("fused", "multi", "unpadded"),
        ("torch", "single", "unpadded"),
        ("fused", "single", "unpadded"),
        ("fused", "single", "padded"),
        ("fused", "none", "padded"),
    ]


def test_6995_sends_sglangs_lengths():
    """1024 tokens with SGLang's range ratio 0.7 are int(1024 * 0.7) to 1024 tokens."""
    from specbench.workloads.random_lengths import length_range

    run_options = load_recipe("sglang-pr-6995", OPTIONS).run
    for side in ("input", "output"):
        assert length_range(run_options[f"random_{side}_len"], run_options["random_range_ratio"]) == (716, 1024)


# -- what a user writes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rum]\n", r"unknown key 'rum' = {} \(did you mean 'run'\?\); allowed: summary, run, arm, report"),
        (
            "[run]\nnum_prompt = 3",
            r"run: unknown key 'num_prompt' = 3 \(did you mean 'num_prompts'\?\); allowed: model",
        ),
        ("[run]\nnum_prompts = '3'", "run.num_prompts: '3' is not allowed; allowed: int"),
        ("[run]\nignore_eos = 1", "run.ignore_eos: 1 is not allowed; allowed: bool"),
        ("[run]\nseed = true", "run.seed: True is not allowed; allowed: int"),
        ("[run]\nstop = 'x'", "run.stop: 'x' is not allowed; allowed: list"),
        ("[run]\nlogit_bias = [1]", "run.logit_bias: 1 is not allowed; allowed: str"),
        ("[run]\nstop_token_id = [1, 'a']", "run.stop_token_id: 'a' is not allowed; allowed: int"),
        ("[run]\nbanned_token_ids = [true]", "run.banned_token_ids: True is not allowed; allowed: int"),
        ("[run]\nk = 2\nnum_speculative_tokens = 3", "run.num_speculative_tokens: is another spelling of k; give one"),
        ("[run]\nlabel = 'x'", "run: unknown key 'label'"),
        ("run = 3", r"run: 3 is not allowed; allowed: a table \[run\]"),
        ("arm = 3", r"arm: 3 is not allowed; allowed: \[\[arm\]\] tables"),
        ("[[arm]]\nk = 4", "arm 1: strategy: None is not allowed"),
        ("[[arm]]\nstrategy = 'eagle'\nk = [4]", r"arm 1: k: \[4\] is not allowed; allowed: text without a comma"),
        ("[[arm]]\nstrategy = 'eagle'\nk = true", "arm 1: k: True is not allowed"),
        ("[[arm]]\nstrategy = 'eagle'\nbaseline = 1", "arm 1: baseline: 1 is not allowed; allowed: a bool"),
        ("[[arm]]\nstrategy = 'eagle'\nclaim = {tps = [1]}", r"claim.tps: \[1\] is not allowed; allowed: a number or"),
        ("[report]\ncolums = []", r"report: unknown key 'colums' = \[\] \(did you mean 'columns'\?\)"),
        ("[report]\nnotes = [1]", r"report.notes: \[1\] is not allowed; allowed: list of text"),
        ("[report]\nclaim = {hardwear = 'x'}", "report.claim: unknown key 'hardwear'"),
        ("x = ", "is not valid TOML"),
    ],
)
def test_mistakes_in_a_recipe_are_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_recipe(write(tmp_path, text), OPTIONS)


def test_unknown_recipes_columns_and_bases_are_named():
    with pytest.raises(
        ValueError, match=r"recipe: 'vllm-pr-2519' is not known \(did you mean 'vllm-pr-25196'\?\); allowed:"
    ):
        load_recipe("vllm-pr-2519", OPTIONS)
    with pytest.raises(ValueError, match="allowed: sglang-pr-6995, .*, or a .toml file"):
        load_recipe("nowhere.toml", OPTIONS)
    with pytest.raises(ValueError, match=r"report.columns: 'tsp' is not known \(did you mean 'tps'\?\)"):
        check_columns(["tsp"])
    with pytest.raises(ValueError, match="base: 'bets' is not known; allowed: vllm-0.9, best"):
        load_base("bets", OPTIONS)


def test_numbers_without_a_point_are_fine_where_a_fraction_is_meant(tmp_path):
    recipe = load_recipe(write(tmp_path, "[run]\nrequest_rate = 3\ntemperature = 0.5\nstop_token_id = [1]"), OPTIONS)
    assert recipe.run == {"request_rate": 3, "temperature": 0.5, "stop_token_ids": (1,)}


# -- what is typed ---------------------------------------------------------------------------------------------------

ARM = parse_arm("eagle:k=4,sync=multi,graph_first=piecewise")


def test_defaults_fill_gaps_and_what_is_typed_replaces_the_arms_own():
    arm = with_switches(ARM, Switches(defaults={"sync": "none", "attention": "torch", "head": "a"}, given={}))
    assert arm.engine == {"sync": "multi", "graph_first": "piecewise", "attention": "torch"}
    assert arm.options == {"k": "4", "head": "a"} and arm.label == ARM.label
    arm = with_switches(arm, Switches(defaults={}, given={"sync": "single", "head": "b"}))
    assert arm.engine["sync"] == "single" and arm.options["head"] == "b"
    assert arm.label == f"{ARM.label} [sync=single]", "a label must not name what was not run"


def test_a_whole_graph_plan_replaces_the_arms_parts():
    arm = with_switches(ARM, Switches(defaults={}, given={"graph": "none"}))
    assert arm.engine == {"sync": "multi", "graph": "none"} and arm.label == f"{ARM.label} [graph=none]"


def test_a_head_concerns_eagle_arms_only():
    arm = with_switches(parse_arm("no-spec"), Switches(defaults={"head": "a"}, given={}))
    assert arm.options == {} and arm.engine == {}


def test_arms_that_became_the_same_are_measured_once_and_said_so(tmp_path):
    tables = [
        f"[[arm]]\nstrategy = 'eagle'\nlabel = '{name}'\nsync = '{sync}'"
        for name, sync in (("a", "multi"), ("b", "single"))
    ]
    options = RunOptions.of({"recipe": write(tmp_path, "\n".join(tables)), "sync": "single"})
    arms, record = recipe_arms(options.file, options, arm_check(options))
    assert [arm.label for arm in arms] == ["a [sync=single]"]
    assert [row.label for row in record.rows] == ["a [sync=single]", "a [sync=single]"]
    assert [row.name for row in record.rows] == ["a [sync=single]", "b"]
    assert record.notes == ("b: the same as a [sync=single] with these switches; measured once",)


def test_arms_that_are_spelled_differently_are_measured_once_too(tmp_path):
    spelled = ["ngram", "ngram:k=4", "ngram:acceptance=measured:sharegpt", "ngram:k=4,acceptance=measured:sharegpt"]
    tables = "\n".join(f"[[arm]]\nstrategy = '{text}'" for text in spelled)
    for text, typed in ((tables, {}), ("", {"strategy": tuple(spelled)})):
        common = {"recipe": write(tmp_path, text), "device": "cpu", "model": "toy", "load_format": "dummy"}
        options = RunOptions.of({**common, **typed})
        arms, record = recipe_arms(options.file, options, arm_check(options))
        assert [arm.label for arm in arms] == spelled[::2]
        assert [(row.name, row.label) for row in record.rows[1::2]] == [(spelled[n + 1], spelled[n]) for n in (0, 2)]
        assert len(record.notes) == 2


# -- measured acceptance ---------------------------------------------------------------------------------------------


def rates(text: str) -> list[float]:
    arm = with_measured_rates(parse_arm(text, {"acceptance": "measured:sharegpt"}))
    resolved = resolve_arm(arm, "cpu", synthetic_weights=True)
    return list(resolved.acceptance.marginal) if resolved.acceptance else []


def test_measured_rates_follow_the_depth_that_is_drafted():
    marginal = list(measured_acceptances()["sharegpt"].marginal)
    assert len(marginal) >= 4 and marginal == sorted(marginal, reverse=True)
    assert rates("eagle:k=4") == marginal[:4] and rates("eagle:k=2") == marginal[:2]
    assert rates("eagle-topk:num_steps=2,topk=4,num_draft_tokens=4") == marginal[:2], "a tree by depth, not by nodes"
    measured = measured_acceptances()["sharegpt"]
    assert measured.rates(len(marginal) + 2) == (*marginal, 0, 0), "nothing is forced that was not measured"
    assert rates("no-spec") == []


def test_measured_acceptance_says_what_was_measured_and_unknown_names_are_refused():
    found = find_measured("measured:gsm8k")
    assert found is not None and found.source in found.note
    assert all(f"{rate:g}" in found.note for rate in measured_acceptances()["gsm8k"].marginal)
    assert find_measured("synthetic:2") is None and find_measured(None) is None
    with pytest.raises(ValueError, match="'measured:x' is not known; allowed: measured:sharegpt, measured:gsm8k"):
        find_measured("measured:x")


def note_of(**options) -> str:
    return acceptance_note(RunOptions.of(options))


def test_measured_acceptance_of_a_single_arm_has_its_note_too(tmp_path):
    sharegpt, gsm8k = (find_measured(f"measured:{name}").note for name in ("sharegpt", "gsm8k"))
    arms = ("no-spec", "ngram:acceptance=measured:gsm8k", "ngram:k=2,acceptance=measured:gsm8k")
    assert note_of(strategy=arms) == gsm8k and note_of(strategy=arms[:1]) == ""
    assert note_of(strategy=arms, acceptance="measured:sharegpt") == f"{sharegpt}; {gsm8k}"
    recipe = write(tmp_path, '[[arm]]\nstrategy = "ngram"\nacceptance = "measured:gsm8k"')
    assert note_of(recipe=recipe) == gsm8k
    assert note_of(recipe=recipe, acceptance="measured:sharegpt") == sharegpt, "which replaces the arm's own"


def check_on(device: str):
    return functools.partial(resolve_arm, device=device, synthetic_weights=True)


# -- one thing at a time ---------------------------------------------------------------------------------------------


def rows_of(name: str, ablations: dict | None = None, **given: str):
    base = load_base(name, OPTIONS)
    defaults = {"acceptance": "measured:sharegpt", "head": "random"}
    switches = Switches(defaults=defaults, given=given)
    arms, record = ablate(base, ablations or base.ablations, switches, check_on("cuda"))
    by_label = {arm.label: arm for arm in arms}
    return [(row, by_label[row.label] if row.label else None) for row in record.rows]


@pytest.mark.parametrize("name", ["vllm-0.9", "best"])
def test_each_row_changes_one_switch_of_the_base(name, a_gpu_with_everything):
    (_, base), *others = rows_of(name)

    def everything(arm):
        return {"strategy": arm.strategy, **arm.options, **arm.engine}

    for row, arm in others:
        if arm is None:
            assert row.refused and "resolved:" not in row.refused
            continue
        before, after = everything(base), everything(arm)
        changed = {key for key in before | after if before.get(key) != after.get(key)}
        assert changed == {row.switch} and after[row.switch] == row.value
    for switch in load_base(name, OPTIONS).ablations:
        assert any(row.switch == switch for row, _ in others), switch


def test_what_another_switch_forbids_is_refused_and_not_repaired(a_gpu_with_everything):
    refused = {(row.switch, row.value): row.refused for row, arm in rows_of("vllm-0.9") if arm is None}
    assert "must read the accepted counts" in refused["sync", "none"], "it would need padded as well"
    assert "reads in the middle of the round" in refused["graph", "one"]
    refused = {(row.switch, row.value): row.refused for row, arm in rows_of("best") if arm is None}
    assert "planned on the host" in refused["attention", "flashinfer"]
    assert ("drafter", "unpadded") in refused and ("sync", "multi") in refused


def test_the_bases_own_values_are_no_rows(a_gpu_with_everything):
    rows = rows_of("vllm-0.9", {"sync": ("multi", "single"), "graph_first": ("piecewise", "none"), "k": ("4", "2")})
    assert [(row.switch, row.value) for row, _ in rows] == [
        ("base", "vllm-0.9"),
        ("sync", "single"),
        ("graph_first", "none"),
        ("k", "2"),
    ]
    first, second = measured_acceptances()["sharegpt"].marginal[:2]
    assert rows[3][1].engine["acceptance"] == f"synthetic:rates={first:g}/{second:g}", "as many as are drafted"


def test_a_plan_of_another_spelling_is_the_bases_own(a_gpu_with_everything):
    values = {"graph": ("full_and_piecewise", "none"), "graph_first": ("full", "none")}
    rows = rows_of("best", values, graph="Full-And-Piecewise")
    assert [(row.switch, row.value) for row, _ in rows[1:]] == [("graph", "none"), ("graph_first", "none")]


def test_a_base_that_cannot_run_here_is_refused_by_name():
    with pytest.raises(ValueError, match="base best .*: graph is refused: CUDA graphs need a CUDA device"):
        base = load_base("best", OPTIONS)
        ablate(base, base.ablations, Switches(given={"attention": "torch"}), check_on("cpu"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sync", "'sync' is not switch=value"),
        ("sync=", "'sync=' is not switch=value"),
        ("synk=none", r"unknown key 'synk' = 'none' \(did you mean 'sync'\?\)"),
        ("sync=nono", "sync='nono' is not known; allowed: auto, multi, single, none"),
        ("graph_mixed=one", "graph_mixed='one' is not known; allowed: none, piecewise, full"),
        ("k=four", "k='four' is not a whole number"),
    ],
)
def test_ablations_of_unknown_switches_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        parse_ablations([text])


def test_an_ablation_given_twice_is_refused():
    with pytest.raises(ValueError, match="sync is given twice"):
        parse_ablations(["sync=none", "sync=multi"])
