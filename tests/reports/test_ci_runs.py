"""The workflows for other people's repositories, run as far as it goes without GitHub: every command, on a toy engine
with two commits and on a toy head, and the script that comments."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cli.conftest import CHAT_VOCAB, HEAD, chat_model  # noqa: F401
from toy.checkpoints import llama_config, write_eagle3, write_llama
from toy.engine_checkout import BEHIND, commit, edit, make_checkout, make_finder
from toy.eval_tasks import with_chat_template
from toy.few_words import WORDS, drafting, says_four_words
from toy.workflows import NAMES, TEMPLATES, Runner, read

SCHEDULER = "python/sglang/scheduler.py"
ARM = "--strategy sglang/eagle:k=3,head=random"
LOAD = "--model smollm2-135m --load-format dummy --num-layers 2 --dtype float32 --device cpu --dataset-name random "
LOAD += "--random-input-len 6 --random-output-len 40 --num-prompts 4 --max-model-len 64 --warmup-max-s 0.05"

pytestmark = pytest.mark.slow


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    """A checkout of an engine with the policy, as the workflow's comments say to set it: for a shared machine, and an
    engine that tells no graphs."""
    root = make_checkout(tmp_path / "engine")
    edit(root, SCHEDULER, "STEP_S = 0.02", "STEP_S = 0.003")
    policy = (TEMPLATES / "specbench-engine.toml").read_text()
    policy = policy.replace('"1%"', '"25%"').replace("[gate.graph_share]", "# [gate.graph_share]")
    (root / "specbench-engine.toml").write_text(policy)
    commit(root, "base")
    make_finder(tmp_path / "runner" / "engine", root, BEHIND)
    return root


@pytest.mark.parametrize(("step_s", "code"), [("0.003  # the same", 0), ("0.009", 1)], ids=["equal", "slower"])
def test_the_engine_of_a_pull_request_against_its_base(fork, tmp_path, step_s, code):
    edit(fork, SCHEDULER, "STEP_S = 0.003", f"STEP_S = {step_s}")
    commit(fork, "change")
    env = {"SPECBENCH_ARM": ARM, "SPECBENCH_LOAD": LOAD, "RUNNER_TEMP": str(tmp_path / "runner")}
    codes = Runner(read("specbench-engine"), fork, {**env, "SPECBENCH_CACHE": str(tmp_path / "cache")}).steps()
    assert codes == {"Measure base and change": 0, "Gate": code, "Build the site": 0}
    (run,) = (fork / "runs").iterdir()
    arms = {arm["label"]: arm["engine"] for arm in json.loads((run / "run.json").read_text())["arms"]}
    assert [arms[label]["config"]["source.ref"] for label in "AB"] == ["HEAD^", "HEAD"]
    comment = (fork / "comment.md").read_text().replace("\\", "")
    assert comment.startswith("<!-- specbench:specbench-engine -->\n")
    assert "regressed: step_ms, tpot_ms" in comment if code else "gates passed" in comment, comment
    assert "position 3" in comment and (fork / "site" / "index.html").is_file()
    assert "<testsuite" in (fork / "gate.xml").read_text() and (tmp_path / "summary.md").stat().st_size


@pytest.mark.parametrize(("words", "code"), [(WORDS, 0), ((1, 2, 3, 4), 1)], ids=["equal", "worse"])
def test_the_head_of_a_pull_request_against_its_base(chat_model, tmp_path, words, code):  # noqa: F811
    """The worse one drafts words that its target never says."""
    folder, target = tmp_path / "heads", llama_config(vocab_size=CHAT_VOCAB, max_position_embeddings=256)
    model = with_chat_template(chat_model, tmp_path)
    write_llama(model, target, change=says_four_words)
    for side, own in (("base", WORDS), ("change", words)):
        head = {**HEAD, "draft_vocab_size": len(own)}
        write_eagle3(folder / side / "head", head, target, change=drafting(own))
        shutil.copy(TEMPLATES / "specbench-head.toml", folder / side)
    load = "--dtype float32 --device cpu --dataset-name random --random-input-len 12 --random-output-len 40 "
    load += "--num-prompts 6 --num-repeats 1 --max-model-len 64 --warmup-max-s 0.05"
    codes = Runner(read("specbench-head"), folder, {"MODEL": str(model), "SPECBENCH_LOAD": load}).steps()
    assert codes == {"Check the head": code, "Measure base and change": 0, "Gate": code, "Build the site": 0}
    comment = (folder / "comment.md").read_text().replace("\\", "")
    assert comment.startswith("<!-- specbench:specbench-head -->\n") and (folder / "site" / "index.html").is_file()
    if code:
        assert "regressed: acceptance_length, acceptance_by_position, tokens_per_step" in comment


COMMENT = """
const fs = require('fs');
const file = process.argv[1];
const store = [{id: 1, user: {login: 'somebody'}, body: fs.readFileSync('specbench/comment.md', 'utf8')}];
const github = {
  paginate: async () => store,
  rest: {issues: {
    listComments: null,
    createComment: async c => store.push({id: store.length + 1, user: {login: 'github-actions[bot]'}, body: c.body}),
    updateComment: async c => { store.find(each => each.id === c.comment_id).body = c.body; },
  }},
};
const context = {repo: {owner: 'o', repo: 'r'}, issue: {number: 1}};
const core = {warning: text => { throw new Error(text); }};
const run = new (Object.getPrototypeOf(async () => {}).constructor)('github', 'context', 'core', 'require',
  fs.readFileSync(file, 'utf8'));
(async () => {
  await run(github, context, core, require);
  fs.appendFileSync('specbench/comment.md', 'again');
  await run(github, context, core, require);
  console.log(JSON.stringify(store));
})();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="GitHub's script needs node")
@pytest.mark.parametrize("name", NAMES[1:])
def test_a_second_run_updates_the_comment_of_the_first(tmp_path, name):
    (tmp_path / "specbench").mkdir()
    (tmp_path / "specbench" / "comment.md").write_text(f"<!-- specbench:{name} -->\nfirst ")
    (tmp_path / "script.js").write_text(read(name)["jobs"]["comment"]["steps"][-1]["with"]["script"])
    done = subprocess.run(
        ["node", "-e", COMMENT, "script.js"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    other, ours = json.loads(done.stdout)
    assert other["body"].endswith("first ") and ours["body"].endswith("first again")
