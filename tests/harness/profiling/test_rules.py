"""Rules: what the shipped ones say of each engine's names, and what a user's file may do."""

from __future__ import annotations

import pytest

from specbench.harness.profiling.rules import PhaseRules, Rule

SHIPPED = PhaseRules.shipped()


@pytest.mark.parametrize(
    ("name", "phase", "draft_step", "segment"),
    [
        ("specbench:advance", "advance", None, None),
        ("specbench:compact", "compact", None, None),
        ("specbench:draft_first", "draft", 0, None),
        ("specbench:draft_next", "draft", None, None),
        ("specbench:target", None, None, "target"),
        ("specbench:first", "draft", 0, "first"),
        ("specbench:later", None, None, "later"),
        ("specbench:round", None, None, "round"),
        ("specbench:prefill", "prefill", None, None),
        ("specbench:status", "status", None, None),
        ("specbench:next_tokens", "host", None, None),
        ("specbench:prepare", "host", None, None),
        ("gpu_model_runner: forward", "verify", None, None),
        ("gpu_model_runner: draft", "draft", None, None),
        ("gpu_model_runner: eplb", "host", None, None),
        ("draft_extend", "draft", 0, None),
        ("step[TARGET_VERIFY bs=4]", "verify", None, None),
        ("step[DRAFT_EXTEND bs=4]", "prefill", None, None),  # outside a drafter's range
    ],
)
def test_shipped_phases(name, phase, draft_step, segment):
    rule = SHIPPED.matcher().rule(name)
    assert rule is not None
    assert (rule.phase, rule.draft_step, rule.segment) == (phase, draft_step, segment)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("specbench:step 12", "any"),
        ("execute_context_0(0)_generation_8(40)", "decode"),
        ("execute_context_10(5000)_generation_8(40)", "mixed"),
        ("execute_3_context_0(sq0sk0)_generation_2(sq1sk300)", "decode"),
        ("execute_3_context_1(sq0sk0)_generation_2(sq1sk300)", "mixed"),
        ("execute_new_0_cached_4", "decode"),
        ("execute_new_1_cached_4", "mixed"),
    ],
)
def test_shipped_steps(name, step):
    rule = SHIPPED.matcher().rule(name)
    assert rule is not None and rule.step == step


def test_names_of_nobody_match_nothing():
    matcher = SHIPPED.matcher()
    assert not [name for name in ("drafting", "Specbench:verify", "ProfilerStep#3", "") if matcher.rule(name)]


@pytest.mark.parametrize(
    ("kernel", "is_attention"),
    [
        ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64>>", True),
        ("paged_attention_kernel", True),
        ("BatchPrefillWithPagedKVCacheKernel<...>", True),
        ("fmha_cutlassF_bf16_aligned_64x64", True),
        ("kernel_mha", True),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", False),
        ("rope_store_kv_kernel", False),
    ],
)
def test_attention_kernels(kernel, is_attention):
    assert SHIPPED.matcher().is_attention(kernel) is is_attention


def test_a_users_rules_come_first(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'attention = ["my_mixer*"]\n[[rule]]\npattern = "specbench:verify"\nphase = "host"\n'
        '[[rule]]\npattern = "[[]Executor] _forward_step *"\nstep = "any"\n'
    )
    matcher = SHIPPED.with_file(path).matcher()
    assert matcher.rule("specbench:verify") == Rule(pattern="specbench:verify", phase="host")
    step = matcher.rule("[Executor] _forward_step 7: 0 ctx reqs, 1 gen reqs")
    assert step is not None and step.step == "any"
    assert matcher.is_attention("my_mixer_fwd") and matcher.is_attention("flash_fwd_kernel")
    kept = matcher.rule("specbench:accept")
    assert kept is not None and kept.phase == "accept"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rule]", "cannot be read as TOML"),
        ("rules = 3", "unknown field `rules`"),
        ('attention = "x"', "Expected `array`, got `str` - at `$.attention`"),
        ("rule = 1", "Expected `array`, got `int` - at `$.rule`"),
        ('[[rule]]\nphase = "verify"', "missing required field `pattern` - at `$.rule[0]`"),
        ('[[rule]]\npattern = "a"', "give one of step, phase, segment"),
        ('[[rule]]\npattern = "a"\nphase = "target"', "allowed: prefill, mixed, advance"),
        ('[[rule]]\npattern = "a"\nstep = "x"', "allowed: any, decode, mixed"),
        ('[[rule]]\npattern = "a"\nstep = true', "got `bool` - at `$.rule[0].step`"),
        ('[[rule]]\npattern = "a"\nphase = "verify"\ndraft_step = 1', "allowed: draft"),
        ('[[rule]]\npattern = "a"\nphase = "draft"\nnumber = 1', "unknown field `number` - at `$.rule[0]`"),
    ],
)
def test_errors_name_the_rule_and_what_is_allowed(tmp_path, text, said):
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(ValueError) as error:
        SHIPPED.with_file(path)
    assert str(error.value).startswith("rules: ") and said in str(error.value)


def test_a_missing_file():
    from pathlib import Path

    with pytest.raises(ValueError, match="cannot be read"):
        SHIPPED.with_file(Path("/nowhere/rules.toml"))
