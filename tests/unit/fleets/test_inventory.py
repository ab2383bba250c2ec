"""Inventories: hosts, groups, Ansible's precedence of variables, and what is an error.

The expected connections are those of ``ansible-inventory --host`` of ansible-core 2.19.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.fleets import Inventory, NamedTarget, read_inventory, resolve_hosts

INI = """\
# machines
web[01:03].example.org ansible_user=deploy
db1 ansible_host=10.0.0.7 ansible_port=2222
[web]
web[01:03].example.org
[db]
db1
[eu:children]
web
db
[eu:vars]
ansible_user = "ops"
[db:vars]
ansible_port=22
"""
YAML = """\
all:
  vars: {ansible_user: root}
  hosts:
    bastion: {ansible_host: 192.0.2.1}
  children:
    web:
      hosts: {"web[1:2]": {}, web9: {ansible_port: 2022}}
      vars: {ansible_user: www}
    site:
      children: {web: {}}
"""


def read(tmp_path: Path, text: str, name: str = "hosts.ini") -> Inventory:
    (tmp_path / name).write_text(text)
    return read_inventory(tmp_path / name)


def found(inventory: Inventory, *patterns: str) -> dict[str, str]:
    """The targets of hosts, without their scheme."""
    return {host.name: str(host.target).removeprefix("ssh://") for host in resolve_hosts(patterns, inventory)}


def target(tmp_path: Path, text: str, name: str = "hosts.ini", host: str = "h01") -> str:
    return found(read(tmp_path, text, name), host)[host]


def test_an_inventory_of_ansible(tmp_path: Path) -> None:
    inventory = read(tmp_path, INI)
    assert found(inventory, "@eu") == {
        "web01.example.org": "deploy@web01.example.org",
        "web02.example.org": "deploy@web02.example.org",
        "web03.example.org": "deploy@web03.example.org",
        "db1": "ops@10.0.0.7:2222",
    }
    assert list(found(inventory)) == list(found(inventory, "@all")) == list(found(inventory, "@*"))
    assert list(found(inventory)) == ["web01.example.org", "web02.example.org", "web03.example.org", "db1"]
    assert list(found(inventory, "@eu!@db")) == [f"web0{number}.example.org" for number in (1, 2, 3)]
    assert list(found(inventory, "web*,!web02.example.org")) == ["web01.example.org", "web03.example.org"]
    assert list(found(inventory, "!@web")) == ["db1"]
    with pytest.raises(ConfigError, match="no host matches '@nope'") as caught:
        resolve_hosts("@nope", inventory)
    assert "@eu" in caught.value.hint


def test_an_inventory_in_yaml(tmp_path: Path) -> None:
    inventory = read(tmp_path, YAML, "hosts.yml")
    assert found(inventory) == {
        "bastion": "root@192.0.2.1",
        "web1": "www@web1",
        "web2": "www@web2",
        "web9": "www@web9:2022",
    }
    assert list(found(inventory, "@site")) == ["web1", "web2", "web9"]
    assert list(found(inventory, "@ungrouped")) == ["bastion"]


# -- precedence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[web]\nh01\n[db]\nh01\n[web:vars]\nansible_port=21002\n[db:vars]\nansible_port=21003\n", "h01:21002"),
        ("[db]\nh01\n[web]\nh01\n[web:vars]\nansible_port=21002\n[db:vars]\nansible_port=21003\n", "h01:21002"),
        (
            "[a]\nh01\n[b]\nh01\n[a:vars]\nansible_port=1\nansible_group_priority=10\n[b:vars]\nansible_port=2\n",
            "h01:1",
        ),
        ("[z]\nh01\n[a:children]\nz\n[z:vars]\nansible_port=1\n[a:vars]\nansible_port=2\n", "h01:1"),
        # b is deeper than z, as it is also below c; z has more groups below it
        (
            "[z]\nh01\n[b]\nh01\n[c:children]\nb\n[z:vars]\nansible_port=1\n[b:vars]\nansible_port=2\n"
            "[c:vars]\nansible_group_priority=99\nansible_port=3\n",
            "h01:2",
        ),
        ("[b]\nh01\n[all:vars]\nansible_port=1\nansible_user=u\n[b:vars]\nansible_port=2\n", "u@h01:2"),
        ("h01 ansible_port=1\n[b]\nh01 ansible_port=2\n[b:vars]\nansible_port=3\n", "h01:2"),
        ("h01\n[ungrouped:vars]\nansible_port=1\n", "h01:1"),
        ("h01\n[b]\nh01\n[ungrouped:vars]\nansible_port=1\n", "h01"),
        ("[b:vars]\nansible_port=1\n[b]\nh01\n", "h01:1"),
    ],
)
def test_the_order_of_precedence_is_that_of_ansible(tmp_path: Path, text: str, expected: str) -> None:
    assert target(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "web: {hosts: {h01: }, vars: {ansible_port: 1}}\ndb: {hosts: {h01: }, vars: {ansible_port: 2}}\n",
            "h01:1",
        ),
        (
            "web: {hosts: {h01: }, vars: {ansible_port: 1}}\n"
            "db: {hosts: {h01: }, vars: {ansible_port: 2, ansible_group_priority: 2}}\n",
            "h01:2",
        ),
        ("p: {children: {c: {hosts: {h01: }, vars: {ansible_port: 1}}}, vars: {ansible_port: 2}}\n", "h01:1"),
        ("all: {vars: {ansible_host: x}, hosts: {h01: {ansible_host: }}}\n", "h01"),
        ("all: {hosts: {'h01:21002': {ansible_user: }}}\n", "h01:21002"),
        ("all: {hosts: h01, vars: {ansible_port: '7'}}\n", "h01:7"),
        (
            "a: {children: {web: {hosts: {h01: }}}}\nb: {children: {web: {vars: {ansible_port: 5}}}}\n",
            "h01:5",
        ),
        ("all: {hosts: {h01: {ansible_port: 1}}, children: {a: {hosts: {h01: {ansible_port: 2}}}}}\n", "h01:2"),
        ("all: {children: {a: {hosts: {h01: {ansible_port: 2}}}}, hosts: {h01: {ansible_port: 1}}}\n", "h01:1"),
        ("x: &x {hosts: {h01: }}\ny: {<<: *x, vars: {ansible_port: 5}}\n", "h01:5"),
        ("x: {hosts: {h01: {secret: !vault 'abc', note: !unsafe '{{x}}', ansible_port: 6}}}\n", "h01:6"),
    ],
)
def test_the_same_in_yaml(tmp_path: Path, text: str, expected: str) -> None:
    assert target(tmp_path, text, "hosts.yml") == expected


def test_the_files_next_to_an_inventory_are_read(tmp_path: Path) -> None:
    for name, text in {
        "group_vars/all.yml": "ansible_port: 1\nansible_user: all\n",
        "group_vars/web/a.yml": "ansible_port: 2\n",
        "group_vars/web/b.yml": "ansible_port: 3\n",
        "group_vars/web/.c.yml": "ansible_port: 4\n",
        "host_vars/h02": "ansible_host: 192.0.2.2\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    inventory = read(tmp_path, "[web]\nh01\nh02\n[db]\nh03\n[web:vars]\nansible_user=file\nansible_port=9\n")
    assert found(inventory) == {"h01": "all@h01:3", "h02": "all@192.0.2.2:3", "h03": "all@h03:1"}
    (tmp_path / "group_vars/db.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n00\n")
    with pytest.raises(ConfigError, match=r"group_vars/db\.yml is encrypted"):
        read(tmp_path, "[db]\nh03\n")


# -- names of hosts


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("h01:21002\n", "h01", {"h01": "h01:21002"}),
        ("h[01:02]:21002\n", "h02", {"h02": "h02:21002"}),
        ("h01 ansible_host=10.0.0.1 ansible_port=7\n", "root@h01", {"root@h01": "root@10.0.0.1:7"}),
        ("h01 ansible_host=10.0.0.1 ansible_user=u\n", "h01:22", {"h01:22": "u@10.0.0.1:22"}),
        ("h01 ansible_host=10.0.0.1\n", "root@*", {"root@h01": "root@10.0.0.1"}),
        ("[web]\nh01 ansible_host=10.0.0.1\n", "root@@web", {"root@h01": "root@10.0.0.1"}),
        ("h01 ansible_host=10.0.0.1\n", "ssh://h01", {"ssh://h01": "h01"}),
        ("root@h01:21002\n", "h01", {"h01": "root@h01:21002"}),
        ("root@h01:21002\n", "", {"root@h01:21002": "root@h01:21002"}),
        ("root@h01:21002\n", "deploy@h01", {"deploy@h01": "deploy@h01:21002"}),
        ("ssh://root@h01\n[all:vars]\nansible_port=7\n", "", {"ssh://root@h01": "root@h01:7"}),
        ("docker://app\n[all:vars]\nansible_user=u\n", "", {"docker://app": "docker://app"}),
        ("localhost ansible_connection=local ansible_port=7\n", "", {"localhost": "local:"}),
        ("2001:db8::1\n[2001:db8::2]:22\n", "", {"2001:db8::1": "[2001:db8::1]", "2001:db8::2": "[2001:db8::2]:22"}),
        ("h01 ansible_host=2001:db8::1\n", "", {"h01": "[2001:db8::1]"}),
        ("h01 ansible_ssh_host=10.0.0.1 ansible_ssh_port=7 ansible_ssh_user=u\n", "", {"h01": "u@10.0.0.1:7"}),
        ("h01 ansible_host=x ansible_ssh_host=x\n", "", {"h01": "x"}),
        ("h01 ansible_port='7'\n[all:vars]\nansible_port=8 # c\nansible_user='u'\n", "", {"h01": "u@h01:7"}),
        ("\ufeffh01 ansible_port=7\n", "", {"h01": "h01:7"}),
        ("\ufeff[web]\nh01\n", "@web", {"h01": "h01"}),
        ("h[1:3:2]\nh9\n", "", {"h1": "h1", "h3": "h3", "h9": "h9"}),
        ("h[:2] # c\n", "", {"h0": "h0", "h1": "h1", "h2": "h2"}),
        ("h[9:11]\n", "", {"h9": "h9", "h10": "h10", "h11": "h11"}),
        ("h[01:02]\n", "h[01-02],!h02:22,h01:22,h02:22", {"h01": "h01", "h02": "h02", "h01:22": "h01:22"}),
    ],
)
def test_names(tmp_path: Path, text: str, pattern: str, expected: dict[str, str]) -> None:
    assert found(read(tmp_path, text), *([pattern] if pattern else [])) == expected


def test_a_port_of_the_inventory_counts_for_exclusions(tmp_path: Path) -> None:
    inventory = read(tmp_path, "a ansible_port=7\nb ansible_port=8\n")
    assert list(found(inventory, "!*:7")) == ["b"]


def test_a_name_that_the_inventory_does_not_have_is_an_error(tmp_path: Path) -> None:
    inventory = read(tmp_path, "h[01:03]\nroot@x\ndeploy@x\n")
    with pytest.raises(ConfigError, match=r"hosts\.ini has no host 'h1'") as caught:
        resolve_hosts("h[1-3]", inventory)
    assert "h01 is another name than h1" in caught.value.hint
    with pytest.raises(ConfigError, match="has no host 'other'") as caught:
        resolve_hosts("other", inventory)
    assert "ssh://other" in caught.value.hint
    with pytest.raises(ConfigError, match=r"'x' is ambiguous: .* has root@x, deploy@x"):
        resolve_hosts("x", inventory)
    named = {"h01": NamedTarget("ssh://elsewhere"), "lab": NamedTarget("ssh://lab.example")}
    hosts = resolve_hosts("h01,lab", inventory, targets=named)
    assert [str(host.target) for host in hosts] == ["ssh://h01", "ssh://lab.example"]


# -- errors of the file


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a", "web1\n[x:what]\n", "a, line 2: .*not hosts, children or vars"),
        ("a", "web1 'x\n", "line 1: no closing quotation"),
        ("a", "[all:vars]\nuser\n", "line 2.*NAME=VALUE"),
        ("a", "[all:vars]\nexport ansible_port=2\n", "line 2.*NAME=VALUE"),
        ("a", "web[3:1]\n", r"a, line 1: \[3:1\] in .* is not a range"),
        ("a", f"web[1:{'9' * 5000}]\n", "a, line 1: .* is not a range"),
        ("a", f"web[1:3:{'9' * 5000}]\n", "a, line 1: .* is not a range"),
        ("a.yml", f"all: {{hosts: {{web1: {{ansible_port: {'9' * 5000}}}}}}}\n", "a.yml: invalid YAML: .*4300 digits"),
        ("a.yml", "all: {hosts: {web1: {since: 2024-13-01}}}\n", "a.yml: invalid YAML: month must be in 1..12"),
        ("a.yml", "all: {hosts: {web1: {up: !!bool maybe}}}\n", "a.yml: invalid YAML: 'maybe'"),
        ("a.yml", "[" * 20_000, "a.yml: invalid YAML: nested too deeply"),
        ("a.yml", "all: &x {children: {web: *x}}\n", "a.yml: a group is in itself, or"),
        ("a", "web[a:10]\n", "is not a range"),
        ("a", "web[1:9:0]\n", "is not a range"),
        ("a", "web[1:3:x]\n", "is not a range"),
        ("a", "web[01:3]\n", "is not a range"),
        ("a", "web[1:999999999]\n", "more than 100,000 hosts"),
        ("a", "h05 ansible_port = 21006\n", "line 1: 'ansible_port' is not NAME=VALUE.*no spaces around '='"),
        ("a", "h05 ansible_port= 21006\n", "line 1: '21006' is not NAME=VALUE"),
        ("a", "h[1:3:2] h9\n", "line 1: 'h9' is not NAME=VALUE.*one host on each line"),
        ("a", "h[01-02] ansible_port=21003\n", r"line 1: \[01-02\] in .* is not a range.*write \[01:20\]"),
        ("a", "h01,h02 ansible_port=21003\n", "line 1: 'h01,h02' is not a host name.*one host on each line"),
        ("a", "h01:\n", "line 1: 'h01:' .*yml"),
        ("a", "---\nall:\n", "line 1: .*yml"),
        ("a", "[my group]\nh01\n", r"line 1: '\[my group\]' is not a section"),
        ("a", "[web\nh01\n", "line 1: .* is not a section"),
        ("a", "[prod:children]\nwbe\n[web]\nh01\n", r"line 2: \[prod:children\] names an undefined group 'wbe'"),
        ("a", "[wbe:vars]\nansible_port=1\n[web]\nh01\n", r"line 1: \[wbe:vars\] is about an undefined group"),
        ("a", "[prod:children]\nweb db\n[web]\n[db]\n", "line 2: 'web db' is not the name of a group"),
        ("a", "[x:children]\nall\n", "line 2: the group all cannot be in another group"),
        ("a", "[a]\nh1\n[a:children]\nb\n[b:children]\na\n", "a group is in itself: a, b"),
        ("a", "[a]\n[a:vars]\nansible_group_priority=high\n", "line 3: ansible_group_priority 'high' is not a number"),
        ("a", "h1:1\nh1:2\n", "line 2: 'h1' is already known with another port"),
        ("a", "[a]\nh1\n[b]\nh1:2\n", "line 4: 'h1' is already known with no port"),
        ("a", "root@h1 ansible_user=deploy\n", "line 1: 'root@h1' has another user in ansible_user"),
        ("a", "docker://x ansible_user=u\n", "line 1: docker://x is a complete target"),
        ("a", "root:secret@h1\n", r"line 1: .*root:\*\*\*@h1' holds a password"),
        ("a", "h1\u00a0ansible_port=2\n", "line 1: .*has a space"),
        ("a", "[db]\ndb ansible_port=2\n", "line 2: 'db' is also the name of a group"),
        ("a", "#!/bin/sh\necho\n", "a is a program.*ansible-inventory"),
        ("a.toml", "[web.hosts]\n", "TOML is not supported"),
        ("a.yml", "a: [", "invalid YAML"),
        ("a.yml", "[a, b]", "not a mapping"),
        ("a.yml", "all: {hosts: [a]}", "group all: hosts is not a mapping"),
        ("a.yml", "web: {hosts: {h1: }}\nweb: {hosts: {h2: }}", "'web' is given twice.*line 2"),
        ("a.yml", "web: {hosts: {h1: {ansible_port: 1}, h1: }}", "'h1' is given twice"),
        ("a.yml", "web: {host: {h1: }}", "group web: 'host' is not hosts, vars or children"),
        ("a.yml", "web: {hosts: {1.10: }}", "group web: the host 1.1 is not text"),
        ("a.yml", "1: {hosts: {h: }}", "the group 1 is not text"),
        ("a.yml", "web: {hosts: {'h[01-02]': }}", r"group web, host h\[01-02\]: .* is not a range"),
        ("a.yml", "web: {children: {all: }}", "the group all cannot be in another group"),
        ("a.yml", "plugin: aws_ec2\n", "configures the inventory plugin aws_ec2"),
        ("a.json", '{"_meta": {"hostvars": {}}}', "group _meta: 'hostvars' is not"),
    ],
)
def test_mistakes_in_an_inventory(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, text, name)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ("ansible_port=ssh", "a, line 1: h01: ansible_port 'ssh' is not a port"),
        ("ansible_port=0", "is not a port"),
        ("ansible_port=70000", "is not a port"),
        ("ansible_port=0x16", "is not a port"),
        (f"ansible_port={'9' * 5000}", "is not a port"),
        (f"ansible_port=0x{'f' * 5000}", "is not a port"),
        ("ansible_port=", "ansible_port '' is not a port"),
        ("ansible_host=", "ansible_host '' is not a host"),
        ("ansible_host=10.10", "ansible_host 10.1 is not a host"),
        ("ansible_host=-oProxyCommand=x", "names no host"),
        ("ansible_host=10.0.0.1:22", "is not a host.*ansible_port"),
        ("ansible_host=root@10.0.0.1", "is not a host.*ansible_user"),
        ("ansible_host={{x}}", "does not evaluate templates"),
        ("ansible_user=True", "ansible_user True is not a user"),
        ("ansible_user=a:b", r"line 1: h01|password"),
        ("ansible_user=x@y", "h01"),
        ("ansible_user=x+docker://y", "h01"),
        ("ansible_host=a ansible_ssh_host=b", "h01 has ansible_host 'a' and ansible_ssh_host 'b'"),
        ("ansible_connection=winrm", "line 1: h01 has ansible_connection=winrm"),
        ("ansible_connection=community.docker.docker", "reads only ssh and local.*docker://NAME"),
        ("ansible_ssh_common_args='-o ProxyJump=bastion'", "line 1: h01 has ansible_ssh_common_args with '-o'"),
        ("ansible_ssh_common_args='-oStrictHostKeyChecking=no -J b'", "with '-J'"),
        ("ansible_ssh_extra_args='-F other'", "with '-F'"),
        ("ansible_ssh_args='-p 7'", "with '-p'"),
        ("ansible_paramiko_proxy_command='ssh b'", "ansible_paramiko_proxy_command, which"),
        ("ansible_ssh_executable=/opt/jump", "ansible_ssh_executable, which"),
        ("ansible_become=true", "line 1: h01 has ansible_become.*--user root"),
        ("ansible_become=1 ansible_become_user=app", "--user app"),
    ],
)
def test_what_would_reach_another_machine_or_account_is_an_error(tmp_path: Path, variables: str, message: str) -> None:
    inventory = read(tmp_path, f"h01 {variables}\nh02\n", "a")
    with pytest.raises(ConfigError, match=message):
        resolve_hosts("h01", inventory)
    assert found(inventory, "*,!h01") == {"h02": "h02"}


@pytest.mark.parametrize(
    "variables",
    [
        "ansible_connection=ssh",
        "ansible_connection=ansible.builtin.ssh",
        "ansible_ssh_common_args='-o StrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null -C -vi key'",
        "ansible_ssh_args=''",
        "ansible_ssh_executable=/usr/bin/ssh",
        "ansible_become=no ansible_become_user=root",
        "ansible_ssh_private_key_file=~/.ssh/x ansible_password=y ansible_python_interpreter=/usr/bin/python3",
        "http_port={{x}} a=b",
    ],
)
def test_what_says_nothing_about_machine_and_account_is_ignored(tmp_path: Path, variables: str) -> None:
    assert target(tmp_path, f"h01 {variables}\n") == "h01"


def test_the_caller_may_decide_about_the_account(tmp_path: Path) -> None:
    inventory = read(tmp_path, "h01 ansible_become=true\n")
    assert [str(host.target) for host in resolve_hosts("h01", inventory, ignore_become=True)] == ["ssh://h01"]


def test_an_encrypted_address_is_an_error(tmp_path: Path) -> None:
    inventory = read(tmp_path, "a: {hosts: {h01: {ansible_host: !vault 'x'}, h02: {ansible_port: true}}}", "a.yml")
    with pytest.raises(ConfigError, match=r"group a, host h01: h01: ansible_host \(encrypted\) is not a host"):
        resolve_hosts("h01", inventory)
    with pytest.raises(ConfigError, match="ansible_port True is not a port"):
        resolve_hosts("h02", inventory)


def test_a_long_chain_of_groups(tmp_path: Path) -> None:
    """Depths are not computed by recursion."""
    groups = "".join(f"[g{number}:children]\ng{number + 1}\n" for number in range(3000))
    assert target(tmp_path, f"{groups}[g3000]\nh01\n[g3000:vars]\nansible_port=7\n") == "h01:7"
