"""Packs that have to be asked for, and profiles, at the command line."""

from __future__ import annotations

import json

from tests.support.program import Program


def call(program: Program, profile: str, name: str, arguments: object) -> tuple[int, str, str]:
    done = program.run("tools", "call", "--tool-profile", profile, name, json.dumps(arguments))
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_what_has_to_be_asked_for_is_counted_and_listed_with_all(program: Program) -> None:
    done = program.run("tools", "list")
    said = done.stderr.decode()
    assert done.returncode == 0
    assert "more tools are opt-in (pack agents, dev, web); --all lists them" in said
    lines = program.run("tools", "list", "--all").stdout.decode().splitlines()
    assert lines[0].split()[:2] == ["NAME", "PACK"]
    packs = {line.split()[0]: line.split()[1] for line in lines[1:]}
    assert (packs["sig"], packs["fetch_url"], packs["task"], packs["read_file"]) == ("dev", "web", "agents", "core")
    found = {
        tool["name"]: tool["offered"] for tool in json.loads(program.run("tools", "list", "--all", "--json").stdout)
    }
    assert (found["sig"], found["read_file"]) == (False, True)
    (program.home / "f.py").write_text("def f(): ...\n")
    code, out, _ = call(program, "none", "sig", {"file": "f.py"})
    assert (code, "def f()" in out) == (0, True)


def test_settings_offer_more_packs_or_a_profile(program: Program) -> None:
    settings = program.home / "config" / "harness" / "config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('[tools]\nextra_packs = ["dev"]\n')
    names = [line.split()[0] for line in program.run("tools", "list").stdout.decode().splitlines()]
    assert ("sig" in names, "fetch_url" in names) == (True, False)
    settings.write_text('[tools]\ntool_profile = "gofastr"\n')
    lines = program.run("tools", "list").stdout.decode().splitlines()
    assert lines[0].split()[:3] == ["NAME", "OWN", "NAME"]
    assert ["Bash", "run_shell"] in [line.split()[:2] for line in lines]
    assert json.loads(program.run("tools", "schema", "Read").stdout)["input_schema"]["required"] == ["path"]
    assert "read_file" in program.run("tools", "list", "--tool-profile", "none").stdout.decode()


def test_a_profile_is_listed_described_and_called_by_its_own_names(program: Program) -> None:
    found = json.loads(program.run("tools", "list", "--tool-profile", "hex", "--json").stdout)
    assert {tool["name"]: tool["own_name"] for tool in found}["bash"] == "run_shell"
    told = json.loads(program.run("tools", "schema", "grep", "--tool-profile", "hex", "--provider", "anthropic").stdout)
    assert "-i" in told["input_schema"]["properties"]
    code, out, _ = call(program, "hex", "bash", {"command": "rm f"})
    assert (code, out) == (126, "")
    code, out, _ = call(program, "hex", "read_file", {"path": "gone"})
    assert (code, out.startswith("Error: ")) == (1, True)
    done = program.run("tools", "call", "bash", '{"command": "echo hi"}', "--tool-profile", "terse", "--json")
    outcome = json.loads(done.stdout)
    assert (outcome["tool"], outcome["data"]) == ("bash", {"stdout": "hi\n", "stderr": "", "exit_code": 0})
    kept = program.run("audit", "show", "--json").stdout.decode()
    assert "run_shell" in kept
    assert '"bash"' not in kept
