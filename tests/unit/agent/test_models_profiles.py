"""The models of the settings files: what may be written, what is refused, and which one is chosen."""

from __future__ import annotations

import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from harness.agent.models import (
    CommandKey,
    EnvironmentKey,
    FileKey,
    KeyringKey,
    ModelProfile,
    ModelTable,
    Price,
    load_models,
)
from harness.errors import ConfigError
from harness.operate.template import settings_template
from harness.settings import CommandLineChoices

FULL = """
[models.claude]
provider = "anthropic"
model = "claude-x"
base_url = "https://proxy.example.com/anthropic"
key = { env = "MY_KEY" }
context_window = 200000
max_output_tokens = 8192
temperature = 0.2
top_p = 1
reasoning = "medium"
prices = { input = 3, output = 15.5, cache_read = 0.3, cache_write = 3.75 }
timeout = "2m"
retries = 2
"""


def load(tmp_path: Path, text: str, *, project: str = "", **environ: str) -> ModelTable:
    (tmp_path / "config/harness").mkdir(parents=True, exist_ok=True)
    (tmp_path / "config/harness/config.toml").write_text(text)
    here = tmp_path / "here"
    here.mkdir(exist_ok=True)
    if project:
        (here / "harness.toml").write_text(project)
    return load_models(environ={"XDG_CONFIG_HOME": str(tmp_path / "config"), **environ}, directory=here)


def refusal(tmp_path: Path, text: str, *, project: str = "", **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, project=project, **environ)
    return str(caught.value)


def test_every_key_of_a_profile_is_read(tmp_path: Path) -> None:
    found = load(tmp_path, FULL)
    assert found.default == "claude"
    assert found.profiles == (
        ModelProfile(
            name="claude",
            provider="anthropic",
            model="claude-x",
            base_url="https://proxy.example.com/anthropic",
            key=EnvironmentKey("MY_KEY"),
            context_window=200_000,
            max_output_tokens=8192,
            temperature=0.2,
            top_p=1.0,
            reasoning="medium",
            prices=Price(Decimal(3), Decimal("15.5"), Decimal("0.3"), Decimal("3.75")),
            timeout=120.0,
            retries=2,
        ),
    )


@pytest.mark.parametrize(
    ("written", "source"),
    [
        ('{ env = "A_KEY" }', EnvironmentKey("A_KEY")),
        ('{ file = "~/key" }', FileKey("~/key")),
        ('{ command = ["pass", "show", "x"] }', CommandKey(("pass", "show", "x"))),
        ('{ command = ["op"], timeout = "1m" }', CommandKey(("op",), 60.0)),
        ('{ keyring = "harness", user = "me" }', KeyringKey("harness", "me")),
    ],
)
def test_a_key_is_named_by_its_place(tmp_path: Path, written: str, source: object) -> None:
    text = f'[models.a]\nprovider = "openai"\nmodel = "m"\nkey = {written}\n'
    assert load(tmp_path, text).profile("a").key == source


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('key = "sk-secret-0123456789"', "models.a.key: settings files must not contain keys"),
        ("key = {}", "models.a.key: give one of env, file, command and keyring"),
        ('key = { env = "A", file = "b" }', "models.a.key: give one of env, file, command and keyring"),
        ('key = { command = "pass show sk-secret" }', "models.a.key.command: input should be a valid list"),
        ("key = { command = [] }", "models.a.key.command: list should have at least 1 item"),
        ('key = { command = [""] }', "models.a.key: timeout goes with a command, which is a list of words"),
        ('key = { env = "A", timeout = 3 }', "models.a.key: timeout goes with a command"),
        ('key = { keyring = "x" }', "models.a.key: keyring and user go together"),
        ('key = { env = "sk-secret" }', "models.a.key.env: string should match pattern"),
        ('key = { evn = "A" }', "models.a.key.evn: unknown key (did you mean 'env'?)"),
        (
            'base_url = "https://me:sk-secret@host"',
            "models.a.base_url: a URL must not contain a password, a query",
        ),
        ('base_url = "https://host/v1?key=sk-secret"', "a URL must not contain a password, a query"),
        ('base_url = "host:80"', "models.a.base_url: write http://host or https://host"),
        ("temprature = 1", "models.a.temprature: unknown key (did you mean 'temperature'?)"),
        ("temperature = 3", "models.a.temperature: input should be less than or equal to 2"),
        ('reasoning = "huge"', "models.a.reasoning: input should be"),
        ("prices = { input = 1 }", "models.a.prices.output: field required"),
        ("prices = { input = -1, output = 1 }", "models.a.prices.input: input should be greater than or equal to 0"),
        ("prices = { input = nan, output = 1 }", "models.a.prices.input"),
        ("timeout = 0", "models.a.timeout: input should be greater than or equal to 0.1"),
        ("timeout = inf", "models.a.timeout"),
        ("retries = 21", "models.a.retries: input should be less than or equal to 20"),
        ("context_window = 0", "models.a.context_window: input should be greater than or equal to 1"),
    ],
)
def test_a_mistake_is_named_by_its_place_and_no_value_of_a_key_is_shown(tmp_path: Path, line: str, said: str) -> None:
    text = refusal(tmp_path, f'[models.a]\nprovider = "openai"\nmodel = "m"\n{line}\n')
    assert said in text
    assert "sk-secret" not in text
    assert str(tmp_path / "config/harness/config.toml") in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models = 3", "models is not a table"),
        ("[models]\na = 3", "models.a is not a table (write [models.a])"),
        ('[models."a:b"]\nprovider = "openai"\nmodel = "m"', "invalid name 'a:b'"),
        ('[models.a]\nmodel = "m"', "models.a.provider: field required"),
        ('[models.a]\nprovider = "openai"', "models.a.model: field required"),
        ('[models.a]\nprovider = "openia"\nmodel = "m"', "unknown provider 'openia'; did you mean 'openai'?"),
        ('[models.a]\nprovider = "openai"\nmodel = "a b"', "models.a.model: string should match pattern"),
        ('[models.a]\nprovider = "openai-compatible"\nmodel = "m"', "openai-compatible needs a base_url"),
        ("[agent]\nmodel = 3", "agent.model: must be the name of a model"),
        ('[agent]\nmodel = "nope"', "unknown model 'nope'"),
    ],
)
def test_a_table_that_is_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text)


@pytest.mark.parametrize("table", ['[models.a]\nprovider = "openai"\nmodel = "m"', '[agent]\nmodel = "openai:m"'])
def test_a_directory_that_is_not_trusted_chooses_no_model(tmp_path: Path, table: str) -> None:
    assert "may only be set by files that are trusted" in refusal(tmp_path, "", project=table)
    trusting = f'trusted_dirs = ["{tmp_path / "here"}"]\n'
    assert load(tmp_path, trusting, project=table).profile().model == "m"


def test_a_later_file_replaces_a_profile_as_a_whole(tmp_path: Path) -> None:
    trusting = f'trusted_dirs = ["{tmp_path / "here"}"]\n{FULL}'
    project = '[models.claude]\nprovider = "openai"\nmodel = "m"\n'
    assert load(tmp_path, trusting, project=project).profile() == ModelProfile("claude", "openai", "m")


TWO = """
[models.a]
provider = "openai"
model = "m"
[models.b]
provider = "ollama"
model = "n:8b"
"""


def test_the_variable_chooses_before_the_settings_and_these_before_the_only_one(tmp_path: Path) -> None:
    assert load(tmp_path, TWO).default == ""
    assert load(tmp_path, f'[agent]\nmodel = "b"\n{TWO}').profile().label == "ollama:n:8b"
    assert load(tmp_path, f'[agent]\nmodel = "b"\n{TWO}', HARNESS_MODEL="a").profile().name == "a"
    assert load(tmp_path, TWO, HARNESS_MODEL="google:gemini-x").profile() == ModelProfile(
        "google:gemini-x", "google", "gemini-x"
    )


def test_a_model_is_named_by_its_profile_or_by_its_provider(tmp_path: Path) -> None:
    found = load(tmp_path, TWO)
    assert found.profile("a").model == "m"
    assert found.profile("ollama:qwen3:8b") == ModelProfile("ollama:qwen3:8b", "ollama", "qwen3:8b")
    for wrong, said in {
        "c": "unknown model 'c' (the models are a, b; or write provider:model)",
        "": "no model is chosen (set model in [agent] to one of these: a, b)",
        "openai:": "invalid model",
        "openai: m": "invalid model",
        "anthropik:m": "did you mean 'anthropic'?",
    }.items():
        with pytest.raises(ConfigError) as caught:
            found.profile(wrong)
        assert said in str(caught.value)


def test_without_any_model_it_is_said_how_to_configure_one(tmp_path: Path) -> None:
    found = load(tmp_path, "")
    assert found == ModelTable()
    with pytest.raises(ConfigError, match=r"no model is configured \(add a \[models\.NAME\] table"):
        found.profile()


@pytest.mark.parametrize(
    ("profile", "sources"),
    [
        (ModelProfile("a", "google", "m"), (EnvironmentKey("GOOGLE_API_KEY"), EnvironmentKey("GEMINI_API_KEY"))),
        (ModelProfile("a", "openai", "m", key=FileKey("f")), (FileKey("f"),)),
        (ModelProfile("a", "openai", "m", base_url="http://localhost:1"), ()),
        (ModelProfile("a", "bedrock", "m"), ()),
    ],
)
def test_a_usual_key_is_for_its_provider_alone(profile: ModelProfile, sources: tuple[object, ...]) -> None:
    assert profile.key_sources == sources


def test_the_explicit_file_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text(TWO)
    found = load_models(
        CommandLineChoices(config_file=str(tmp_path / "more.toml")), environ={"HOME": str(tmp_path)}, directory=tmp_path
    )
    assert [profile.name for profile in found.profiles] == ["a", "b"]


def test_the_models_of_the_template_are_valid(tmp_path: Path) -> None:
    models = settings_template().partition("# [models.claude]")
    text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in (models[1] + models[2]).splitlines())
    assert [profile.name for profile in load(tmp_path, text).profiles] == ["claude", "gpt", "local"]


@pytest.mark.usefixtures("needs_process")
def test_importing_the_models_loads_no_provider() -> None:
    script = "import sys, harness.agent.models; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"pydantic", "pydantic_ai", "pydantic_core", "httpx2", "openai", "genai_prices", "keyring", "ssl", "email"}
    assert set(done.stdout.split()) & heavy == set()


def test_the_settings_of_the_page_are_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/models.md").read_text()
    names = [
        profile.name
        for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
        for profile in load(tmp_path, text).profiles
    ]
    assert names == ["claude", "cheap", "local", "a", "b", "c", "d", "vllm"]
