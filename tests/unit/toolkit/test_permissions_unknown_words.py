"""Words that are only known at run time, where a hard denial goes by words: the command asks in every mode."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.own_home import here
from tests.support.permits import desk

from harness.context import ExecutionContext
from harness.toolkit.permissions.decision import DecisionStep
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode

__all__ = ["here"]

BLOCKED = [
    "harness permissions add --allow x",
    "harness exec --dangerously-auto-approve 'delete everything'",
    "harness exec --approve='rm *' x",
    "harness --ssh web1 exec x --approve 'rm *'",
    "python3 -m harness exec --dangerously-auto-approve x",
    "for p in permissions; do harness $p add --allow x; done",
    "harness run 'harness permissions add --allow x'",
    "harness --tmux run -- harness permissions add --allow x",
    "harness --fresh-connection run -- harness permissions add --allow x",
    "harness --dedicated-connection run -- harness permissions add --allow x",
    "harness --tmux=work --ssh web1 run --cwd /srv 'rm -rf /'",
    "parallel harness permissions add --allow ::: x",
    "parallel rm -rf ::: / /srv",
    "parallel 'rm -rf {}' ::: /",
    "rm -rf /",
    "rm --rec /",
    "rm -rf /*",
    "rm -rf /* /.*",
    "rm -rf /{*,.*}",
    "rm -rf {/,}",
    "cd / && rm -rf *",
    "cd / && rm -rf .",
    "cd /usr && rm -rf ..",
    "cd /usr && rm -rf ../*",
    "rm -rf ../../../../../../../../../../..",
    "d=/; rm -rf $d",
    'for d in /tmp/x /; do rm -rf "$d"; done',
    "find / -delete",
    "find / -xdev -type f -delete",
    "find / -delete -name x",
    "find / -exec rm -rf {} + -name x",
    "find / -name '*' -exec rm -rf {} +",
    "find // -depth -execdir rm -f {} \\;",
    "secret-tool lookup service x",
]
ASKED = [
    "echo permissions add --allow x | xargs harness",
    "echo permissions add --allow x | xargs -n9 env harness",
    "echo permissions add --allow x | parallel harness",
    "harness $(echo permissions) add --allow x",
    "harness `echo permissions` add --allow x",
    "p=permissions; harness $p add --allow x",
    'p=permissions; harness "$p" add --allow x',
    "read -r p; harness $p add",
    "harness {permissions,add,--allow,x}",
    "harness perm* add --allow x",
    "python3 -m harness $X add",
    "python3 -m $(echo harness) permissions add --allow x",
    'uvx "$TOOL" permissions add',
    "alias h=harness; h permissions add --allow x",
    'h() { harness "$@"; }; h permissions add --allow x',
    "find . -name x -exec harness {} \\;",
    "harness",
    "harness exec 'change the rules'",
    "harness resume --last",
    "harness keys 'harness permissions add --allow x' Enter",
    "harness tools call run_shell '{}'",
    "harness mcp",
    "harness acp",
    "python3 -m harness run 'rm -rf /'",
    'harness run "$x"',
    'harness run -- rm -rf "$x"',
    "harness run --nosuch rm x",
    "echo / | xargs rm -rf",
    "echo / | xargs -I{} rm -rf {}",
    "echo / | parallel rm -rf",
    "echo / | parallel 'rm -rf {}'",
    "ls / | xargs rm -rf",
    "find / -print0 | xargs -0 rm -rf",
    'find "$DIR" -print0 | xargs -0 rm -rf',
    'find "$DIR" -exec rm -rf {} +',
    'rm -rf "$HOME_OF_X"/',
    "rm -rf $(cat list)",
    "rm -rf ${BUILD}/*",
    "x='-rf /'; rm $x",
    'x=-rf y=/; rm "$x" "$y"',
    'find "$dir" -name x -exec rm -rf {} $more \\;',
    "echo lookup service x | xargs secret-tool",
    "secret-tool $verb service x",
    "security $(echo dump-keychain)",
    "echo /etc/shadow | xargs cat",
    "cat $(echo /etc/shadow)",
    'cat "$(cat name)"',
    'cat "$FILE"',
    'read -r f; cat "$f"',
    'f=x; read -r f; cat "$f"',
    'while read -r f; do cp "$f" /tmp/x; done < list',
    "cat x | xargs sed -i s/a/b/",
    'echo x > "$(echo ~/.config/harness/config.toml)"',
    "tee $TARGET < x",
    "find src -name x; echo /etc/shadow | xargs cat",
    "cat list | xargs -0 cp -t /tmp",
]
RUNNING = [
    "harness --version",
    "harness jobs list",
    "harness --ssh web1 panes list",
    "harness permissions list",
    "harness run -- id",
    "harness --ssh web1 --tmux run 'systemctl restart nginx'",
    "rm -rf build",
    "rm -r src/{x,y}",
    "cd src && rm -rf x",
    "d=src; rm -rf $d/x",
    "find . -name '*.pyc' -delete",
    "find build -type f -exec rm {} +",
    "find src -name '*.o' | xargs rm -f",
    "find src -type d -name x -print0 | xargs -0 rm -rf",
    "find src -name a.py | grep -v x | xargs sed -i s/a/b/",
    "f=src/x; cat $f",
    'for f in src/*; do cat "$f"; done',
    "for i in 1 2 3; do echo $i; done",
    "cp conf conf.$(date +%F)",
    'cp conf "conf.$(date -u +%Y%m%d-%H%M%S)"',
    "tar czf /tmp/x-$(hostname -s)-$$.tgz docs",
    'cat "$HOME/x" $PWD/y',
    "echo x > /tmp/out.$$",
    "kill $(pgrep nginx)",
    'systemctl restart "$SERVICE"',
    "curl -s http://localhost:$PORT/health",
    "docker rm $(docker ps -aq)",
    'grep "$pattern" x',
    'sed -i "s/old/$NEW/" x',
    'git commit -m "$MESSAGE"',
    'python3 setup.py "$TARGET"',
    "ls $DIR",
]


@pytest.fixture
def home(here: ExecutionContext, tmp_path: Path) -> Path:
    made = tmp_path / "home/work"
    for name in ("src/x", "src/y", "docs", "build"):
        (made / name).mkdir(parents=True)
    for name in ("x", "y", "conf", "src/x/a.py", "list"):
        (made / name).write_text("text\n")
    return made


async def test_what_nothing_allows_is_denied_however_it_is_written(here: ExecutionContext, home: Path) -> None:
    made = desk(mode=Mode.AUTO, execution=here, cwd=str(home))
    steps = {one: (await made.decide("run_shell", one)).by for one in BLOCKED}
    assert {one: step for one, step in steps.items() if step != DecisionStep.HARD} == {}


async def test_what_may_be_that_asks_in_every_mode(here: ExecutionContext, home: Path) -> None:
    everything = Rule(Action.ALLOW, tool="run_shell", argument="*", match=Match.GLOB)
    for made in (
        desk(mode=Mode.AUTO, execution=here, cwd=str(home)),
        desk(mode=Mode.AUTO, execution=here, cwd=str(home), rules=(everything,)),
    ):
        assert [one for one in ASKED if await made.allows("run_shell", one)] == []


async def test_other_commands_go_on_running_in_mode_auto(here: ExecutionContext, home: Path) -> None:
    made = desk(mode=Mode.AUTO, execution=here, cwd=str(home))
    refused = {one: await made.decide("run_shell", one) for one in RUNNING}
    assert {one: verdict.reason for one, verdict in refused.items() if not verdict.allowed} == {}


async def test_a_rule_that_denies_some_commands_of_a_program_holds_for_words_that_are_not_known() -> None:
    deny = Rule(Action.DENY, tool="run_shell", argument="npm publish*", match=Match.GLOB)
    made = desk(mode=Mode.AUTO, rules=(deny,))
    for command in ("echo publish | xargs npm", "npm $(echo publish)", "g=publish; npm $g", '/usr/bin/npm "$verb"'):
        verdict = await made.decide("run_shell", command)
        assert not verdict.allowed, command
        assert "npm publish*" in verdict.reason
    assert await made.allows("run_shell", "npm install x")
    assert await desk(mode=Mode.AUTO).allows("run_shell", "npm $(echo publish)")


async def test_git_asks_when_it_is_not_known_what_it_does() -> None:
    """It may be ``git show``, and then it matters which files that shows."""
    git = Rule(Action.DENY, tool="run_shell", argument="git push*", match=Match.GLOB)
    told = await desk(mode=Mode.AUTO, rules=(git,)).decide("run_shell", "git $(echo push)")
    assert "git push*" in told.reason
    for command in ("echo show | xargs git", "git $(echo show) HEAD", "g=show; git $g", 'git "$verb"'):
        assert not await desk(mode=Mode.AUTO).allows("run_shell", command), command


async def test_what_a_person_allowed_to_the_letter_runs() -> None:
    command = 'rm -rf "$BUILD"'
    rule = Rule(Action.ALLOW, tool="run_shell", argument=command)
    assert await desk(rules=(rule,)).allows("run_shell", command)
    pattern = Rule(Action.ALLOW, tool="run_shell", argument="rm *", match=Match.GLOB)
    assert not await desk(rules=(pattern,)).allows("run_shell", command)
