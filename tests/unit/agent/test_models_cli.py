"""``harness models``: what is configured, and whether it answers."""

from __future__ import annotations

import json

import pytest
from tests.support.model_server import Failure, ReportedUsage, model_server, say
from tests.support.program import Program

KEY = "harness-test-key-0123456789"


def configure(program: Program, text: str) -> None:
    path = program.home / "config/harness/config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def profile(url: str, name: str = "mine", provider: str = "openai") -> str:
    key = 'key = { file = "~/key" }\n'
    return (
        f'[models.{name}]\nprovider = "{provider}"\nmodel = "gpt-test"\nbase_url = "{url}"\n{key}'
        "prices = { input = 3, output = 15 }\n"
    )


def test_models_are_listed_without_their_keys_being_read(program: Program) -> None:
    configure(program, f'[agent]\nmodel = "mine"\n{profile("https://example.com")}{profile("https://b.example", "b")}')
    done = program.run("models")
    assert done.stdout.decode().splitlines() == [
        "NAME   MODEL            KEY             PRICE   ADDRESS",
        "mine*  openai:gpt-test  the file ~/key  $3/$15  https://example.com",
        "b      openai:gpt-test  the file ~/key  $3/$15  https://b.example",
    ]
    document = json.loads(program.run("models", "list", "--json").stdout)
    assert (document["default"], [one["name"] for one in document["models"]]) == ("mine", ["mine", "b"])
    assert document["models"][0]["key"] == ["the file ~/key"]


def test_without_a_model_it_is_said_how_to_have_one(program: Program) -> None:
    done = program.run("models")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"harness: no model is configured: add a [models.NAME] table")
    assert program.run("models", "check").returncode == 125


def test_a_model_is_tried_out(program: Program) -> None:
    (program.home / "key").write_text(KEY)
    (program.home / "key").chmod(0o600)
    replies = [say("ready", usage=ReportedUsage(1_000_000, 2)), say("ready"), Failure("auth", message=f"bad {KEY}")]
    with model_server(replies) as server:
        configure(program, profile(server.openai_url))
        good, as_json, bad = (
            program.run("models", "check", *words) for words in ([], ["mine", "--json"], ["-vvv", "--json"])
        )
        assert {one.key for one in server.asked} == {KEY}
        assert len(server.asked) == 3, "a check is not sent again"
    assert (good.returncode, good.stderr) == (0, b"")
    lines = good.stdout.decode().splitlines()
    assert lines[0] == "openai:gpt-test responds: ready"
    assert lines[2] == "1000000 tokens in, 2 out; cost $3.000030"
    document = json.loads(as_json.stdout)
    assert (document["ok"], document["name"], document["answer"]) == (True, "mine", "ready")
    assert bad.returncode == 1
    failure = json.loads(bad.stdout)["failure"]
    assert (failure["kind"], failure["retryable"]) == ("auth", False)
    assert "does not accept the key" in failure["message"]
    assert KEY.encode() not in bad.stderr + bad.stdout


def test_names_of_models_are_completed(program: Program) -> None:
    configure(program, f"{profile('https://a.example', 'one')}{profile('https://b.example', 'two')}")
    asked = {"_HARNESS_COMPLETE": "bash_complete", "COMP_LINE": "harness models check t", "COMP_WORD": "t"}
    assert program.run(**asked).stdout == b"plain,two\n"
    configure(program, "[models]\na = 3\n")
    assert program.run(**asked).stdout.strip() == b""


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nope", "unknown model 'nope'"),
        ("nobody:m", "model nobody:m: unknown provider 'nobody'"),
        ("anthropic:m", "model anthropic:m: the variable ANTHROPIC_API_KEY is not set"),
    ],
)
def test_a_model_that_cannot_be_tried_says_why(program: Program, model: str, said: str) -> None:
    program.environ.pop("ANTHROPIC_API_KEY", None)
    done = program.run("models", "check", HARNESS_MODEL=model)
    assert done.returncode == 125
    assert said in done.stderr.decode()
