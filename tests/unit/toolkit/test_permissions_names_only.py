"""Names, sizes, dates and rights of secret files, and certificates, are no secrets; what is in the files is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.own_home import here
from tests.support.permits import desk

from harness.context import ExecutionContext
from harness.toolkit.permissions.decision import DecisionStep
from harness.toolkit.permissions.rules.rule import Action, Match, Rule

__all__ = ["here"]

RUNNING = [
    "ls -la ~/.ssh",
    "ls -l ~/.ssh/id_rsa",
    "ls ~/.ssh/*",
    "ls *.pem",
    "ls -l cert.pem key.pem .env",
    "cd ~/.ssh && ls -la",
    "stat ~/.ssh/id_rsa",
    "stat -c %a key.pem",
    "du -sh *",
    "du -sh .env private",
    "du -a ~/.ssh | sort -n",
    "find ~/.ssh -type f",
    "find ~/.ssh -name 'id_*' -exec ls -l {} \\;",
    "find . -name '*.pem' -newer x",
    "tree ~/.ssh",
    "readlink -f ~/.ssh/id_rsa",
    "getfacl key.pem",
    "namei -l ~/.ssh/id_rsa",
    "ls -l /etc/shadow /etc/gshadow",
    "timeout 5 ls -l key.pem",
    "env LC_ALL=C ls -l key.pem",
    "sh -c 'ls -l ~/.ssh'",
    "openssl x509 -in cert.pem -noout",
    "openssl x509 -in cert.pem -noout -enddate -subject",
    'for f in *.pem; do openssl x509 -in "$f" -noout -enddate; done',
    "openssl crl -in crl.pem -noout -text",
    "ls private",
]
ASKING = [
    "chmod 600 key.pem",
    "chmod 700 ~/.ssh",
    "chmod go-rwx ~/.ssh/id_rsa",
    "chmod g=,o= ~/.ssh/id_rsa",
    "sudo ls -la ~/.ssh",
    "sudo chmod 600 key.pem",
]
DENIED = [
    "cat key.pem",
    "ls key.pem; cat key.pem",
    "cat ~/.ssh/id_rsa; ls -l ~/.ssh/id_rsa",
    "ls < key.pem",
    "ls ~/.ssh/id_rsa > /tmp/x; cat < ~/.ssh/id_rsa",
    "cd ~/.ssh && cat id_rsa",
    "cd ~/.ssh && cat *",
    "cd ~/.ssh; ls; head -1 id_*",
    "sudo cat key.pem",
    "timeout 5 cat key.pem",
    "sh -c 'cat key.pem'; ls key.pem",
    "for f in *.pem; do ls -l $f; cat $f; done",
    "wc -l key.pem",
    "md5sum key.pem",
    "base64 key.pem",
    "file -f key.pem",
    "du --files0-from=key.pem",
    "ls -l .env && grep x .env",
    "find . -name x -newer key.pem -exec cat key.pem {} +",
    "xargs -a key.pem ls key.pem",
    "ls key.pem | xargs cat",
    "time -o key.pem ls key.pem",
    "tar cf - ~/.ssh",
    "cp key.pem /tmp/x",
    "mv key.pem /tmp/x",
    "ln key.pem /tmp/x",
    "rm key.pem",
    "openssl rsa -in key.pem",
    "openssl pkey -in key.pem -text",
    "openssl x509 -in cert.pem -noout; openssl rsa -in cert.pem",
    "chmod 600 key.pem && cat key.pem",
    "chmod 644 key.pem",
    "chmod 0604 key.pem",
    "chmod +r ~/.ssh/id_rsa",
    "chmod o+r,g= ~/.ssh/id_rsa",
    "chmod --reference=x key.pem",
    "chown ann ~/.ssh/id_rsa",
    "chgrp users key.pem",
    "chmod 644 .aiexclude",
    "chmod 644 ~/.config/harness/config.toml",
    "cat private/x",
    "grep -r x key.pem",
]


@pytest.fixture
def home(here: ExecutionContext, tmp_path: Path) -> Path:
    made = tmp_path / "home"
    for name in (".ssh", ".config/harness", "app/private"):
        (made / name).mkdir(parents=True, exist_ok=True)
    for name in (".ssh/id_rsa", ".config/harness/config.toml", "app/x", "app/private/x"):
        (made / name).write_text("text\n")
    for name in ("cert.pem", "key.pem", "crl.pem", ".env"):
        (made / "app" / name).write_text("text\n")
    (made / "app/.aiexclude").write_text("private/\n")
    return made


async def test_what_shows_no_content_runs(here: ExecutionContext, home: Path) -> None:
    made = desk(execution=here, cwd=str(home / "app"))
    refused = {one: await made.decide("run_shell", one) for one in RUNNING}
    assert {one: verdict.reason for one, verdict in refused.items() if not verdict.allowed} == {}


async def test_what_changes_rights_or_runs_as_another_asks(here: ExecutionContext, home: Path) -> None:
    made = desk(execution=here, cwd=str(home / "app"))
    steps = {one: await made.decide("run_shell", one) for one in ASKING}
    assert {
        one: (verdict.allowed, verdict.by) for one, verdict in steps.items() if verdict.by == DecisionStep.HARD
    } == {}
    assert [one for one, verdict in steps.items() if verdict.allowed] == []


async def test_content_stays_denied(here: ExecutionContext, home: Path) -> None:
    made = desk(execution=here, cwd=str(home / "app"))
    steps = {one: (await made.decide("run_shell", one)).by for one in DENIED}
    assert {one: step for one, step in steps.items() if step != DecisionStep.HARD} == {}


async def test_a_rule_that_denies_a_path_holds_for_its_name(here: ExecutionContext, home: Path) -> None:
    rule = Rule(Action.DENY, argument=f"{home}/app/**", match=Match.GLOB)
    made = desk(execution=here, cwd=str(home / "app"), rules=(rule,))
    assert not await made.allows("run_shell", "ls -l key.pem")
    assert not await made.allows("run_shell", "du -sh *")


async def test_names_that_a_program_may_take_for_options_ask(here: ExecutionContext, home: Path) -> None:
    made = desk(execution=here, cwd=str(home / "app"))
    assert await made.allows("run_shell", "du -sh *")
    (home / "app/--files0-from=key.pem").write_text("")
    assert not await made.allows("run_shell", "du -sh *")
    assert not await made.allows("run_shell", "cd .. && cd app && du -sh *")


async def test_names_that_a_shell_would_split_ask(here: ExecutionContext, home: Path) -> None:
    made = desk(execution=here, cwd=str(home / "app"))
    assert await made.allows("run_shell", "for f in x*; do cat $f; done")
    (home / "app/x key.pem").write_text("")
    assert not await made.allows("run_shell", "for f in x*; do cat $f; done")
