import json

from run_samples import sample_run


def test_show_prints_the_table(cli, tmp_path):
    result = cli("show", sample_run(tmp_path).path)
    assert result.exit_code == 0, result.output
    assert "no-spec in TPOT; 4 of 8 outputs equal." in result.stdout and "failed: RuntimeError" in result.stdout
    assert "(1.77x)" in cli("show", sample_run(tmp_path / "again").path, "--format", "wide").stdout


def test_show_json_and_markdown(cli, tmp_path):
    path = sample_run(tmp_path).path
    assert json.loads(cli("show", path, "--format", "json").stdout)["schema"] == "specbench.report/1"
    assert cli("show", path, "--format", "md").stdout.startswith("# sample\n\n| strategy |")
    refused = cli("show", path, "--format", "html")
    assert str(refused.exception) == "format: 'html' is not known; allowed: table, wide, md, json"


def test_show_write_names_the_files_on_stderr(cli, tmp_path):
    path = sample_run(tmp_path).path
    result = cli("show", path, "--format", "json", "--write")
    json.loads(result.stdout)
    assert "report.md" in result.stderr and (path / "report.md").exists()


def test_show_of_no_run_says_what_to_do(cli, tmp_path):
    result = cli("show", tmp_path)
    assert result.exit_code != 0 and "not a run directory" in str(result.exception)


def test_env(cli):
    environment = json.loads(cli("env", "--format", "json").stdout)
    assert environment["hardware"]["cpu"]["logical_cores"] >= 1
    text = cli("env").stdout
    assert "hardware.cpu.model: " in text and "software.packages.torch: " in text
