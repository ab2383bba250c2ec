"""Rules, patterns and their index; settings; names that are not what they seem."""

from __future__ import annotations

import random
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.fleets import Inventory
from harness.patterns.wildcards import Kind, matches
from harness.settings import SettingsTable
from harness.target import Target
from harness.toolkit.contract import Policy
from harness.toolkit.permissions.lookalikes import fold, odd_characters
from harness.toolkit.permissions.rules.host_rules import HostRules
from harness.toolkit.permissions.rules.rule import BLOCKED, Action, Match, Rule, RuleIndex, RuleSubject, blocked
from harness.toolkit.permissions.rules.settings import (
    PROTECTED,
    SECRETS,
    Mode,
    PermissionSettings,
    SecretPaths,
    settings_of,
)

HOME = "/home/ann"


PATTERNS_ROWS = [
    ("git *", "git status -s", "text", True),
    ("git *", "git", "text", False),
    ("git *", "digit *", "text", False),
    ("*.pem", "/a/b/x.pem", "path", True),
    ("*.pem", "/a/x.pem/y", "path", False),
    ("/srv/*", "/srv/a", "path", True),
    ("/srv/*", "/srv/a/b", "path", False),
    ("/srv/**", "/srv/a/b", "path", True),
    ("/srv/**", "/srv", "path", True),
    ("/srv/**", "/srv2/a", "path", False),
    ("**/.ssh/**", "/home/ann/.ssh/id_rsa", "path", True),
    ("**/.ssh/**", "/home/ann/ssh/id_rsa", "path", False),
    ("/a/**/z", "/a/z", "path", True),
    ("/a/**/z", "/a/b/c/z", "path", True),
    ("/a/**/**/z", "/a/b/z", "path", True),
    ("/a/[bc]/z", "/a/c/z", "path", True),
    ("/a/[!bc]/z", "/a/c/z", "path", False),
    ("https://example.com/*", "https://example.com/a/b?c", "url", True),
    ("https://example.com/*", "https://EXAMPLE.com", "url", True),
    ("https://*.example.com/*", "https://a.example.com/x", "url", True),
    ("https://*.example.com/*", "https://evil.net/.example.com/x", "url", False),
    ("https://*.example.com/*", "https://evil.net\\.example.com/x", "url", False),
    ("https://*.example.com/*", "https://evil.net?.example.com/x", "url", False),
    ("https://*.example.com/*", "https://evil.net#.example.com/", "url", False),
    ("https://example.com/*", "https://example.com@evil.net/", "url", False),
    ("https://example.com/*", "http://example.com/", "url", False),
]


def test_patterns() -> None:
    for pattern, text, kind, expected in PATTERNS_ROWS:
        assert matches(pattern, text, kind) is expected


@given(st.text(alphabet="a*?[]!/-.", max_size=40), st.text(alphabet="ab/.", max_size=60))
def test_no_pattern_fails_on_any_text(pattern: str, text: str) -> None:
    for kind in ("path", "text", "url"):
        matches(pattern, text, kind)  # type: ignore[arg-type]  # the kinds, one by one


@pytest.mark.parametrize("kind", ["path", "text", "url"])
def test_no_pattern_takes_long(kind: Kind) -> None:
    begin = time.process_time()
    matches("/" + "*a" * 12 + "b", "/" + "a" * 4000, kind)
    matches("/" + "**/a/" * 12 + "b", "/a" * 2000, kind)
    assert time.process_time() - begin < 2


def subjected(text: str, **more: Any) -> RuleSubject:
    return RuleSubject("ssh://ann@web1:22#k1", more.pop("tool", "run_shell"), text, **more)


WHAT_A_RULE_COVERS = [
    (Rule(Action.ALLOW), subjected("ls"), True),
    (Rule(Action.ALLOW, "ssh://ann@web1:22"), subjected("ls"), True),
    (Rule(Action.ALLOW, "ssh://ann@web1:22#k1"), subjected("ls"), True),
    (Rule(Action.ALLOW, "ssh://ann@web1:22#k2"), subjected("ls"), False),
    (Rule(Action.ALLOW, "ssh://ann@web2:22"), subjected("ls"), False),
    (Rule(Action.ALLOW, "ssh://*@web1*"), subjected("ls"), True),
    (Rule(Action.ALLOW, tool="run_shell"), subjected("ls"), True),
    (Rule(Action.ALLOW, tool="run_*"), subjected("ls"), True),
    (Rule(Action.ALLOW, tool="read_file"), subjected("ls"), False),
    (Rule(Action.ALLOW, argument="ls"), subjected("ls"), True),
    (Rule(Action.ALLOW, argument="ls"), subjected("ls; rm x"), False),
    (Rule(Action.ALLOW, argument="ls *"), subjected("ls; rm x"), False),
    (Rule(Action.ALLOW, argument="ls *"), subjected("ls a"), False),
    (Rule(Action.ALLOW, argument="ls *", match=Match.GLOB), subjected("ls a"), True),
    (Rule(Action.ALLOW, argument="rm -rf build", cwd="/srv"), subjected("rm -rf build", cwd="/srv"), True),
    (Rule(Action.ALLOW, argument="rm -rf build", cwd="/srv"), subjected("rm -rf build", cwd="/"), False),
    (Rule(Action.ALLOW, argument="/srv", match=Match.BELOW), subjected("/srv/a/b", kind="path"), True),
    (Rule(Action.ALLOW, argument="/srv", match=Match.BELOW), subjected("/srv2/a", kind="path"), False),
    (Rule(Action.ALLOW, argument="/srv", match=Match.BELOW), subjected("/srv/a", kind="text"), False),
    (Rule(Action.ALLOW), subjected("x", allows="broad"), True),
    (Rule(Action.ALLOW), subjected("x", allows="exact"), False),
    (Rule(Action.ALLOW, argument="x"), subjected("x", allows="exact"), True),
    (Rule(Action.ALLOW, argument="x"), subjected("x", allows="none"), False),
    (Rule(Action.ALLOW, argument="x*", match=Match.GLOB), subjected("x", allows="broad"), False),
    (Rule(Action.DENY, argument="x*", match=Match.GLOB), subjected("x", allows="none"), True),
    (Rule(Action.DENY, argument="id_*", match=Match.GLOB), subjected("/srv/id_rsa", kind="path"), True),
    (Rule(Action.DENY, argument="id_*", match=Match.GLOB), subjected("/srv/my_id_rsa", kind="path"), False),
    (Rule(Action.DENY, argument="id_*", match=Match.GLOB), subjected("/id_x/rsa", kind="path"), False),
    (Rule(Action.DENY, argument="id_*", match=Match.GLOB), subjected("/srv/id_rsa", kind="text"), False),
    (Rule(Action.DENY, argument="/srv/", match=Match.BELOW), subjected("/srv/id", kind="path"), True),
    (Rule(Action.DENY, argument="/srv/", match=Match.BELOW), subjected("/srv/", kind="path"), True),
    (Rule(Action.DENY, argument="/srv/**", match=Match.GLOB), subjected("/srv", kind="path"), True),
]


def test_what_a_rule_covers() -> None:
    for rule, what, expected in WHAT_A_RULE_COVERS:
        assert rule.covers(what) is expected
        assert (RuleIndex([rule]).first([what]) is rule) is expected


PARTS = st.sampled_from(
    ["a", "b", "/a", "/a/b", "a b", "*", "a*", "/a/*", "/a/**", "*.b", "**/b", "https://a.b/*", "~/a"]
)
RULES = st.builds(
    Rule,
    st.sampled_from(list(Action)),
    st.sampled_from(["*", "ssh://ann@web1:22", "ssh://ann@web1:22#k1", "ssh://*", "local:"]),
    st.sampled_from(["*", "run_shell", "read_*", "read_file"]),
    st.none() | PARTS,
    st.sampled_from(list(Match)),
)
TEXTS = st.sampled_from(["a", "b", "/a", "/a/b", "/A/x.b", "a b", "/b", "https://A.b/c", "~/a", "/a/b/c", ""])
WHATS = st.builds(
    RuleSubject,
    st.sampled_from(["ssh://ann@web1:22#k1", "local:"]),
    st.sampled_from(["run_shell", "read_file"]),
    TEXTS,
    st.sampled_from(["path", "text", "url"]),
)


@given(st.lists(RULES, max_size=12), st.lists(WHATS, min_size=1, max_size=3))
def test_the_index_finds_what_a_search_through_all_rules_finds(rules: list[Rule], whats: list[RuleSubject]) -> None:
    expected = next((rule for rule in rules if any(rule.covers(what) for what in whats)), None)
    assert RuleIndex(rules).first(whats) is expected


def many_rules(count: int) -> list[Rule]:
    pick = random.Random(1)
    words = [f"tool{pick.randrange(10**9)} --flag" for _ in range(count)]
    ways = [Match.LITERAL, Match.GLOB]
    return [
        Rule(Action.ALLOW, f"ssh://host{number % 50}:22", "run_shell", f"{word} *", ways[number % 2])
        for number, word in enumerate(words)
    ]


def least_seconds(index: RuleIndex, what: RuleSubject) -> float:
    times = []
    for _ in range(30):
        begin = time.process_time()
        for _ in range(50):
            index.first([what])
        times.append(time.process_time() - begin)
    return min(times)


def test_ten_thousand_rules_cost_no_more_than_twice_what_ten_cost() -> None:
    few, many = RuleIndex(many_rules(10)), RuleIndex(many_rules(10_000))
    what = subjected("tool1 --flag x")
    assert least_seconds(many, what) < 2 * least_seconds(few, what) + 50 * 5e-6


# -- secrets


@pytest.mark.parametrize(
    "path",
    [
        "/home/ann/.ssh/id_rsa",
        "/home/ann/.ssh",
        "/home/ann/.ssh/some-key",
        "/etc/shadow",
        "/etc/shadow-",
        "/etc/../etc/shadow",
        "//etc/shadow",
        "/proc/self/root/etc/shadow",
        "/proc/1/root/proc/2/root/etc/shadow",
        "/proc/self/task/7/root/etc/shadow",
        "/proc/1/environ",
        "/srv/app/.env",
        "/srv/app/.ENV",
        "/srv/app/.env.production",
        "/srv/app/.e\u200bnv",
        "/srv/app/\uff0eenv",
        "/srv/tls/server.pem",
        "/home/ann/.aws/credentials",
        "/home/ann/.kube/config",
        "/run/secrets/db",
        "/home/ann/.local/state/harness/mcp-token",
    ],
)
def test_a_secret_is_known_by_its_path(path: str) -> None:
    assert SecretPaths(SECRETS).matching(path, HOME)


@pytest.mark.parametrize(
    "path",
    [
        "/home/ann/.ssh/id_rsa.pub",
        "/home/ann/.ssh/config",
        "/etc/ssl/certs/ca-certificates.pem",
        "/srv/app/.env.example",
        "/srv/environment",
        "/srv/.envoy.yaml",
        "/etc/passwd",
        "/proc/1/status",
        "/srv/shadow",
    ],
)
def test_what_is_no_secret(path: str) -> None:
    assert SecretPaths(SECRETS).matching(path, HOME) == ""


def test_patterns_may_name_the_home_and_take_back_earlier_ones() -> None:
    secrets = SecretPaths(("~/notes/**", "!~/notes/public/**"))
    assert secrets.matching("/home/ann/notes/x", HOME) == "~/notes/**"
    assert secrets.matching("/home/bob/notes/x", HOME) == ""
    assert secrets.matching("/home/ann/notes/public/x", HOME) == ""


def test_files_that_give_rights_are_protected() -> None:
    protected = SecretPaths(PROTECTED, copies=False)
    assert not protected.matching("/srv/.aiexclude.bak", HOME)
    for path in ("/srv/.aiexclude", "/home/ann/.config/harness/config.toml", "/x/harness/permissions.json"):
        assert protected.matching(path, HOME)
    for path in ("/home/ann/.local/state/harness/mcp/a.json", "/home/ann/.local/state/harness/audit"):
        assert protected.matching(path, HOME)


PARTS = sorted(
    {name for pattern in (*SECRETS, *PROTECTED) for name in pattern.removeprefix("!").split("/") if name}
    | {"x", "~", "a.key", "x.pem", ".env.local", "id_x_sk", "1", "etc", "proc", "home", "ann", "", "*", "[", "**"}
)
OWN = ("~/notes/**", "/srv/*/**", "**/*", "*/", "~", "a", "!b", "**", "/x/[ab]*", "q/", "")
PATTERNS = st.lists(st.sampled_from((*SECRETS, *PROTECTED, *OWN)), max_size=6)


@given(PATTERNS, st.lists(st.sampled_from(PARTS), max_size=6), st.sampled_from(["/", ""]))
def test_what_is_done_at_once_is_what_no_pattern_matches(patterns: list[str], names: list[str], end: str) -> None:
    path = "/" + "/".join(names) + end
    secrets = SecretPaths(patterns)
    quick = secrets.matching(path, HOME)
    secrets._hints.possible = lambda path: True  # type: ignore[method-assign]  # each pattern is tried
    secrets._found.cache_clear()
    assert quick == secrets.matching(path, HOME)


# -- blocked commands


BLOCKED_COMMANDS = [
    (("rm", "-rf", "/"), True),
    (("/bin/rm", "-fr", "//"), True),
    (("rm", "-r", "-f", "--", "/*"), True),
    (("rm", "--recursive", "/../"), True),
    (("rm", "-rf", "/srv"), False),
    (("rm", "-f", "/"), False),
    (("rm", "-rf", "./*"), False),
    (("rm", "-rf", "*"), False),
    (("harness", "permissions", "add", "--allow", "x"), True),
    (("/usr/local/bin/harness", "permissions", "remove", "1"), True),
    (("harness", "permissions", "list"), False),
    (("harness", "--json", "--ssh", "web1", "permissions", "add", "--allow", "x"), True),
    (("harness", "permissions", "--json", "remove", "1"), True),
    (("python3.12", "-m", "harness", "permissions", "add", "--allow", "x"), True),
    (("python", "-m", "harness.cli.start", "permissions", "add"), True),
    (("/usr/bin/uvx", "harness", "permissions", "add"), True),
    (("harness", "tools", "call", "run_shell", "{}", "--yes"), True),
    (("harness", "tools", "call", "--yes", "run_shell", "{}"), True),
    (("harness", "tools", "call", "run_shell", "{}"), False),
    (("harness", "servers", "accept", "notes"), True),
    (("harness", "servers", "show", "notes"), False),
    (("harness", "audit", "resolve", "1", "abort"), True),
    (("harness", "audit", "show"), False),
    (("python", "harness_report.py", "permissions", "add"), False),
    (("echo", "harness", "permissions", "add"), False),
    (("security", "find-generic-password", "-w"), True),
    ((), False),
]


def test_blocked_commands() -> None:
    for argv, expected in BLOCKED_COMMANDS:
        assert bool(blocked(argv, BLOCKED)) is expected


# -- look-alikes


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("/etc/p\u0430sswd", "CYRILLIC and LATIN"),
        ("/etc/pass\u200bwd", "U+200B"),
        ("/etc/\u202epasswd", "U+202E"),
        ("/etc/\uff50asswd", "looks like 'p'"),
        ("/etc/passwd\x1b[2K", "U+001B"),
    ],
)
def test_a_text_that_is_not_what_it_seems_is_named(text: str, what: str) -> None:
    assert what in odd_characters(text)


@pytest.mark.parametrize(
    "text", ["/etc/passwd", "/home/josé/x", "/home/анна/файл", "/tmp/日本", "two\nlines\tand more", ""]
)
def test_plain_names_are_plain(text: str) -> None:
    assert odd_characters(text) == ""


@given(st.text(max_size=60))
def test_folding_is_idempotent_and_never_fails(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    odd_characters(text)


# -- settings


def table(origin: str = "mine", *, trusted: bool = True, **values: object) -> SettingsTable:
    return SettingsTable(origin, values, trusted)


def test_files_add_up_and_the_later_one_comes_first() -> None:
    settings = settings_of(
        [
            table(mode="auto", allow=["git *", {"tool": "write_file", "argument": "~/out/**"}], deny=["rm *"]),
            table("second", mode="ask", ask=[{"tool": "read_file", "target": "ssh://prod*"}], secret_paths=["*.crt"]),
        ]
    )
    assert settings.mode is Mode.ASK
    assert [str(rule) for rule in settings.rules] == [
        "ask read_file on ssh://prod*",
        "deny run_shell 'rm *'",
        "allow run_shell 'git *'",
        "allow write_file '~/out/**'",
    ]
    assert [rule.origin for rule in settings.rules] == ["second", "mine", "mine", "mine"]
    assert settings.secret_paths[-1] == "*.crt"


@pytest.mark.parametrize(
    "values",
    [
        {"allow": ["ls"]},
        {"mode": "auto"},
        {"secret_paths": ["!.env"]},
        {"approval_timeout": 600.0},
        {"aiexclude_cache_seconds": 100.0},
    ],
)
def test_a_file_that_is_not_trusted_may_not_loosen(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="would allow more"):
        settings_of([SettingsTable("theirs", values, trusted=False)])


def test_a_file_that_is_not_trusted_may_tighten() -> None:
    theirs = table(
        "theirs",
        trusted=False,
        mode="strict",
        deny=["rm *"],
        ask=["git *"],
        secret_paths=["*.x"],
        allowed_tools=["read_file", "x"],
    )
    settings = settings_of([table(allowed_tools=["read_file", "run_shell"], allow=["git *"]), theirs])
    assert (settings.mode, settings.allowed_tools) == (Mode.STRICT, ("read_file",))
    assert [rule.action for rule in settings.rules] == [Action.DENY, Action.ASK, Action.ALLOW]
    assert settings_of([table(allowed_tools=["a"]), table(trusted=False, allowed_tools=["b"])]).allowed_tools == ("",)
    assert settings_of([table(trusted=False, allowed_tools=["b"])]).allowed_tools == ("b",)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mod": "auto"}, "permissions.mod"),
        ({"mode": "yolo"}, "permissions.mode"),
        ({"allow": [{"tool": "x", "arg": "y"}]}, "permissions.allow"),
        ({"deny": "rm *"}, "permissions.deny"),
        ({"approval_timeout": 0}, "permissions.approval_timeout"),
    ],
)
def test_a_mistake_names_file_and_key(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"mine: {message}"):
        settings_of([SettingsTable("mine", values)])


def test_no_file_is_the_default() -> None:
    assert settings_of([]) == PermissionSettings()


def test_the_settings_of_the_documentation_mean_what_it_says() -> None:
    page = (Path(__file__).parents[3] / "docs/permissions.md").read_text()
    text = page.partition("```toml\n")[2].partition("```")[0]
    settings = settings_of([SettingsTable("page", tomllib.loads(text)["permissions"])])
    groups = Inventory("hosts.ini", {"web1": {}, "db1": {}}, {"db": {"db1": None}})
    rules = HostRules(settings.rules, groups)

    def action(tool: str, text: str, kind: Kind = "text", target: str = "local:", host: str = "web1") -> Action | None:
        rule = rules.on(host, Target.parse("local:")).rules.first([RuleSubject(target, tool, text, kind)])
        return rule.action if rule else None

    assert action("run_shell", "make all") is Action.ALLOW
    assert action("write_file", "~/site/a/b.html", "path") is Action.ALLOW
    assert action("run_shell", "systemctl restart nginx") is None
    assert action("run_shell", "systemctl restart nginx", target="ssh://ann@staging3:22") is Action.ALLOW
    assert action("run_shell", "/srv/db/x", "path") is Action.DENY
    assert action("write_file", "/srv/x", "path", "ssh://ann@prod1:22#k") is Action.DENY
    assert action("fetch_url", "https://example.com/", "url") is Action.ASK
    assert action("run_shell", "make all", host="db1") is Action.DENY
    assert set(vars(PermissionSettings)["__dataclass_fields__"]) - {"rules"} == set(
        tomllib.loads(text)["permissions"]
    ) - {"allow", "deny", "ask"}
    examples = page.partition("```python\n")[2].partition("```")[0]
    names: dict[str, object] = {}
    exec(examples, names)
    assert isinstance(names["policy"], Policy)
