"""What the models of the five profiles are to see, by the documents that the profiles come from."""

from __future__ import annotations

import json

from tests.support.profile_steps import WAIT, Step, step

from harness.toolkit.values import Json

__all__ = ["SETUP", "STEPS"]

SETUP = r"""
mkdir -p sorted/sub/none t sub
printf 'b\nc\nc\n' >sorted/a.txt; echo hidden >sorted/.dot; echo hiding >sorted/sub/b.txt
mkdir linked; ln -s ../sorted linked/to
printf 'one\ntwo\n' >t/a.go
printf 'one\ntwo TODO\nthree\n' >n.txt; printf 'TODO not this\n' >sub/z.txt; printf 'a\tb\n\tx\nfunc\n' >t.txt
printf 'package main\nimport "fmt"\ntype T struct { A int }\nfunc (t T) M() {}\nconst C = 1\n' >m.go
printf 'func Run(a int) error { return nil }\n' >>m.go
printf '<<<<<<< HEAD\na\n=======\nb\n>>>>>>> br\n' >c.txt; printf '[{"a":1,"b":"x"},{"a":2,"b":"y"}]' >j.json
printf 'a\rb\fc\v\nd\n' >odd; printf 'h\0i\0' >u.txt; printf 'del' >d.txt
command -v git >/dev/null || exit 0
echo old >sub/g.txt; git init -q . && git add sub && git -c user.email=a@example.com -c user.name=a commit -q -m x
echo new >sub/g.txt
"""
"""Files for the steps, made in the directory where they are run."""


def json_of(**members: Json) -> str:
    """As the profile that answers in JSON writes it."""
    return json.dumps(members, separators=(",", ":"))


# fmt: off
BUDDY = [
    step("run_shell", "exit code: 0\nstdout:\n512M\t/var\nstderr:\n", command="printf '512M\\t/var\\n'", wait=True),
    step("run_shell", "exit code: 3\nstdout:\nout\nstderr:\n", command="echo out; (exit 3)"),
    step("run_shell", r"\nx{4000}\.\.\.\[truncated: 1000 of 5000 bytes of output left out; .*\]\nstderr:\n$", like=True,
         command="printf '%05000d' 0 | tr 0 x"),
    step("run_shell", "exit code: 0\nstdout:\nlate\nstderr:\n", command="echo late", wait="30s"),
    step("run_shell", "exit code: 0\nstdout:\nlate\nstderr:\n", command="echo late", wait=500),
    Step("run_shell", {"command": "echo err >&2"}, "exit code: 0\nstdout:\n\nstderr:\nerr", terminal=False),
    Step("run_shell", {"command": "echo err >&2"}, "exit code: 0\nstdout:\nerr\nstderr:\n", terminal=True),
    Step("run_shell", {"command": "true", "wait": False}, r"^command dispatched as job \d+$", True, terminal=False),
    step("write_file", "Wrote 12 bytes to {dir}/output.txt", path="{dir}/output.txt", content="hello world\n"),
    step("read_file", "hello world\n", path="{dir}/output.txt"),
    step("write_file", "Wrote 8999 bytes to {dir}/long", path="{dir}/long", content="y" * 8_999),
    step("read_file", f"{'y' * 8_000}...[truncated]\n[bytes 0 to 8000 of 8999; continue with offset=8000]",
         path="{dir}/long"),
    step("read_file", "y" * 999, path="{dir}/long", offset=8_000),
    step("read_file", "^Tool error: .*no-such-file", like=True, error=True, path="{dir}/no-such-file"),
    step("read_file", "^Tool error: read_file: .*pth: no such argument; did you mean 'path'", like=True, error=True,
         pth="x"),
    step("time", r"^\d{10}$", like=True),
    step("time", r"^\d{13}$", like=True, format="epoch_ms"),
    step("time", r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$", like=True, format="iso"),
    step("time", r"^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000$", like=True, format="rfc2822"),
    Step("capture-pane", {}, "unknown tool 'capture-pane'", like=True, error=True, terminal=False),
    Step("capture-pane", {"start": "-", "end": "-", "join_wrapped_lines": True}, "late", like=True, terminal=True),
]

GOFASTR = [
    step("Bash", "one\ntwo", cmd="echo one; echo two"),
    step("Bash", "no answer", cmd="read answer || echo no answer; cat"),
    step("Bash", "out\nerr\n[exit code 3]", error=True, cmd="echo out; echo err >&2; exit 3"),
    step("Bash", "{dir}/sub yes", cmd='mkdir -p sub; cd sub; echo "$PWD $GREETING"', env={"GREETING": "yes"}),
    step("Bash", "{dir}/sub", cmd="pwd", cwd="{dir}/sub", timeout_ms=9_999_999),
    step("Bash", r"^(?:begun\n)?\[ended at its time limit.*\]$", like=True, error=True, timeout_ms=1_500,
         cmd="echo begun; sleep 1000"),
    step("Write", "wrote 8 bytes to {dir}/f.txt", path="{dir}/f.txt", content="a\nb\nc\nd\n", mode=0o600),
    step("Read", "a\nb\nc\nd\n", path="{dir}/f.txt"),
    step("Read", "b\nc\nd\n", path="{dir}/f.txt", offset=2),
    step("Read", r"^b\n\[bytes 2 to 4 of 8; continue with offset=4\]$", like=True, path="f.txt", offset=2, limit=1),
    step("Read", r"^a\n\[bytes 0 to 2 of 8; continue with offset=2\]$", like=True, path="f.txt", limit=1),
    step("Read", "[bytes 99 to 99 of 8]", path="f.txt", offset=99),
    step("Bash", "-rw-------", cmd="ls -l f.txt | cut -c1-10"),
    step("Write", "wrote 2 bytes to f.txt", path="f.txt", content="e\n", mode=0o644),
    step("Bash", "-rw-------", cmd="ls -l f.txt | cut -c1-10"),
    step("Bash", "", cmd="echo x > unread"),
    step("Write", "have not read it", like=True, error=True, path="unread", content="y"),
    step("Read", "no such argument; did you mean 'path'", like=True, error=True, pathh="x"),
    step("TaskList", "Testing", like=True,
         tasks=[{"content": "Test", "status": "in_progress", "activeForm": "Testing"}]),
    step("TaskList", "tasks.0.status", like=True, error=True, tasks=[{"content": "Test", "status": "cancelled"}]),
    step("Edit", "have not read it", like=True, error=True, path="sorted/a.txt", old_string="b", new_string="B"),
    step("Read", "b\nc\nc\n", path="sorted/a.txt"),
    step("Edit", r"\n-b\n\+B\n", like=True, path="sorted/a.txt", old_string="b", new_string="B"),
    step("Edit", "2 times", like=True, error=True, path="sorted/a.txt", old_string="c", new_string="C"),
    step("Ls", ".dot\na.txt\nsub/", path="sorted"),
    step("Ls", "(empty directory)", path="sorted/sub/none"),
    step("Ls", "to", path="linked"),
    step("Glob", "sorted/.dot\nsorted/a.txt", pattern="*", root="sorted"),
    step("Glob", "sorted/sub/b.txt", pattern="**/b.*", root="sorted"),
    step("Glob", "(no matches)", pattern="**/*.zig"),
    step("Grep", "sorted/.dot:1:hidden\nsorted/sub/b.txt:1:hiding", pattern="^hid(den|ing)", path="sorted"),
    step("Grep", "sorted/sub/b.txt:1:hiding", pattern="hid", path="sorted", glob="*.txt"),
    step("Grep", "(no matches)", pattern="nowhere"),
    step("Grep", "Grep: .*", like=True, error=True, pattern="("),
]

HEX = [
    step("bash", "STDOUT:\nHello from Bash tool!", command="echo 'Hello from Bash tool!'"),
    step("bash", "STDOUT:\nDone sleeping", command="sleep 1; echo 'Done sleeping'", timeout=60),
    step("bash", "STDOUT:\n/tmp", command="pwd", working_dir="/tmp"),
    step("bash", "(no output)", command="true; cat"),
    step("bash", "STDOUT:\nout\n\nSTDERR:\nerr", command="echo out; echo err >&2"),
    step("bash", "Error: command exited with code 1\nSTDOUT:\nout", error=True, command="echo out; exit 1"),
    step("bash", r"^Error: ended at its time limit", like=True, error=True, timeout=1.5,
         command="echo begun; sleep 1000"),
    step("write_file", "Wrote 13 bytes to {dir}/h.txt", path="{dir}/h.txt", content="Hello, World!"),
    step("read_file", "Hello, World!", path="{dir}/h.txt"),
    step("write_file", "Wrote 10 bytes to digits", path="digits", content="0123456789"),
    step("read_file", "01234", path="digits", limit=5.0),
    step("read_file", "56789", path="digits", offset=5.0),
    step("read_file", "345", path="digits", offset=3, limit=3),
    step("read_file", "0123456789", path="digits", offset=-3),
    step("read_file", "(no output)", path="digits", limit=0),
    step("write_file", "^Error: file already exists: digits; use mode 'overwrite'$", like=True, error=True,
         path="digits", content="x"),
    step("write_file", "Wrote 1 bytes to digits", path="digits", content="x", mode="overwrite"),
    step("write_file", "Wrote 1 bytes to digits", path="digits", content="y", mode="append"),
    step("read_file", "xy", path="digits"),
    step("read_file", "[bytes 99 to 99 of 2]", path="digits", offset=99),
    step("read_file", "^Error: .*missing", like=True, error=True, path="missing"),
    step("todo_write", "✅ Write\n⏳ Testing\n☐ Ship", todos=[
        {"content": "Write", "activeForm": "Writing", "status": "completed"},
        {"content": "Test", "activeForm": "Testing", "status": "in_progress"},
        {"content": "Ship", "activeForm": "Shipping", "status": "pending"},
    ]),
    step("todo_write", "^Error: todo_write: todos: ", like=True, error=True, todos=[]),
    step("read_file", "one\ntwo\n", path="t/a.go"),
    step("edit", r"\n-one\n\+ONE\n", like=True, file_path="t/a.go", old_string="one", new_string="ONE"),
    step("edit", "^Error: old_string is not in", like=True, error=True, file_path="t/a.go", old_string="one",
         new_string="x"),
    step("edit", "^Error: edit: old_string: ", like=True, error=True, file_path="t/a.go", old_string="", new_string=""),
    step("grep", "t/a.go", **{"pattern": "one", "-i": True, "path": "t"}),
    step("grep", "t/a.go-1-ONE\nt/a.go:2:two", **{"pattern": "two", "output_mode": "content", "-B": 1, "path": "t"}),
    step("grep", "t/a.go:1", pattern="ONE", output_mode="count", path="t", type="go"),
    step("grep", "(no output)", pattern="--pre=touch pwned", path="t"),
    step("grep", "(no output)", pattern="nowhere", path="t"),
    step("glob", "t/a.go", pattern="**/*.go", path="t"),
    step("glob", "(no output)", pattern="**/*.zig", path="t"),
    step("bash", r"^Started in the background\nbash_id: (\S+)\nstatus: running$", like=True, run_in_background=True,
         command="echo early; until [ -e go-on ]; do sleep 0.1; done; echo late >&2; exit 3"),
    step("bash", "(no output)", command="touch go-on"),
    Step(WAIT, {}),
    step("bash_output", "status: completed\nexit_code: 3\nSTDOUT:\nearly\n\nSTDERR:\nlate", bash_id="{1}"),
    step("bash_output", "status: completed\nexit_code: 3\n(no output)", bash_id="{1}"),
    step("bash", r"^Started in the background\nbash_id: (\S+)\nstatus: running$", like=True, run_in_background=True,
         command="sleep 1000"),
    step("kill_shell", "", like=True, shell_id="{1}"),
    step("bash_output", r"^Error: .*no job 'none'.*; known jobs: .*\d+ \(interrupted.*\), .*\(completed, exit code 3\)",
         like=True, error=True, bash_id="none"),
    step("kill_shell", r"^Error: .*no job 'none'.*; known jobs: ", like=True, error=True, shell_id="none"),
]

HYGGE = [
    step("bash", "out\nerr", command="echo out; cat; echo err >&2", description="say something"),
    step("bash", "out\ncommand exited with code 2", error=True, command="echo out; exit 2"),
    step("bash", "timeout_ms: input should be less than or equal to 600000", like=True, error=True, command="true",
         timeout_ms=600_001),
    step("write", "a", like=True, path="{dir}/g.txt", content="one\ntwo\nthree\n"),
    step("read", "1: one\n2: two\n3: three", path="g.txt"),
    step("read", r"^2: two\n\[lines 2 to 2 of 3 lines; continue with offset=3\]$", like=True, path="g.txt", offset=2,
         limit=1),
    step("read", "so line 9 does not exist", like=True, path="g.txt", offset=9),
    step("bash", "", command=r"printf '\377\376a\000' >wide; printf '%03000d\n' 7 >long"),
    step("read", r"; 4 bytes\); it looks like UTF-16$", like=True, error=True, path="wide"),
    step("read", r"\n\[truncated: line 1 \(byte_offset=2000\)\]$", like=True, path="long"),
    step("edit", "so oldString cannot match$", like=True, error=True, path="wide",
         oldString="ab", newString="b"),
    step("read", "no such argument; did you mean 'path'", like=True, error=True, file="x", pth="y"),
    step("todo", "Test", like=True, items=[{"content": "Test", "status": "cancelled", "priority": "high"}]),
    step("todo", "", like=True, items=[]),
    step("question", "no user is available", like=True, error=True, question="Which?", options=["a", "b"]),
    step("question", "options", like=True, error=True, question="Which?", options=["a"]),
    step("remember", r"(m\d+)", like=True, content="The build takes two minutes."),
    step("forget", "two minutes", like=True, memory_id="{1}"),
    step("forget", "unknown memory", like=True, error=True, memory_id="{1}"),
    step("edit", r"\n-two\n\+TWO\n", like=True, path="g.txt", oldString="two", newString="TWO"),
    step("edit", "g.txt contains oldString 3 times", like=True, error=True, path="g.txt", oldString="e", newString="E"),
    step("edit", "newString: required", like=True, error=True, path="g.txt", oldString="e"),
    step("grep", "g.txt:2:TWO", pattern="TWO"),
    step("grep", "no matches", pattern="nowhere"),
    step("grep", "max_results: input should be less than or equal to 1000", like=True, error=True, pattern="x",
         max_results=1_001),
    step("glob", r"^g\.txt", like=True, pattern="g*.txt"),
    step("glob", "no matches", pattern="**/*.zig"),
]

TERSE = [
    step("read", json_of(file="n.txt", total_lines=3, from_line=1, to_line=3,
                         content="     1\tone\n     2\ttwo TODO\n     3\tthree\n"), file_path="n.txt"),
    step("read", r'"from_line":2,"to_line":2,"content":"     2\\ttwo TODO\\n","note":"', like=True, file_path="n.txt",
         offset="2", limit=1),
    step("read", json_of(file="odd", total_lines=2, from_line=1, to_line=2,
                         content="     1\ta\rb\x0cc\x0b\n     2\td\n"), file_path="odd"),
    step("read", "so line 9 does not exist", like=True, file_path="n.txt", offset=9),
    step("write", json_of(file="w/new", bytes_written=2, status="created"), file_path="w/new", content="x\n"),
    step("write", json_of(file="w/new", bytes_written=0, status="overwritten"), file_path="w/new", content=""),
    step("write", "have not read it", like=True, error=True, file_path="j.json", content=""),
    step("bash", json_of(stdout="out\n", stderr="err\n", exit_code=0), command="echo out; cat; echo err >&2",
         timeout=60),
    step("bash", "exit code 4\nerr\nout", error=True, command="echo out; echo err >&2; exit 4"),
    step("checkfor", json_of(directories=[{"dir": ".", "matches_found": 1, "files": [
        {"file": "n.txt", "matches": [{"line": 2, "content": "two TODO"}]}]}]), search="TODO", dir=".", ext=".txt"),
    step("checkfor", r'"original_matches":1,"filtered_matches":1', like=True, search="TODO", dir=["sub"],
         exclude=["not this"]),
    step("repfor", r'"dry_run":true', like=True, search="one", replace="1", file="n.txt", dry_run=True),
    step("repfor", r'"total_replacements":1', like=True, search="one", replace="1", file="n.txt"),
    step("read", r'"content":"     1\\t1\\n', like=True, file_path="n.txt"),
    step("write", r'"status":"created"', like=True, file_path="escapes", content="a\\nb\na\nb\n"),
    step("repfor", r'"total_replacements":1', like=True, search="a\\nb", replace="c\\td", file="escapes"),
    step("bash", json_of(stdout="c\\td\na\nb\n", stderr="", exit_code=0), command="cat escapes"),
    step("read", r'"total_lines":3', like=True, file_path="escapes"),
    step("bash", json_of(stdout="", stderr="", exit_code=0), command="echo more >>escapes"),
    step("read", r'"total_lines":4', like=True, file_path="escapes"),
    step("write", r'"status":"overwritten"', like=True, file_path="escapes", content="x"),
    step("bash", json_of(stdout="", stderr="", exit_code=0), command="echo more >>escapes"),
    step("write", "has changed since you read it", like=True, error=True, file_path="escapes", content="y"),
    step("stump", r'"tree":\[.*{"path":"sub","type":"d"},.*{"path":"sub/z.txt","type":"f","size":14}.*"dirs":7',
         like=True, dir=".", show_size=True),
    step("sig", json_of(file="m.go", package="main", imports=["fmt"], types=[
        {"name": "T", "kind": "struct", "line": 3, "fields": [{"name": "A", "type": "int"}]}], functions=[
        {"name": "M", "signature": "func (t T) M()", "line": 4, "receiver": "T"},
        {"name": "Run", "signature": "func Run(a int) error", "line": 6}],
        constants=[{"name": "C", "value": "1", "line": 5}]), file="m.go"),
    step("sig", "unknown language", like=True, error=True, file="n.txt"),
    step("errs", json_of(errors=[{"file": "main.go", "line": 3, "col": 5, "code": "", "severity": "error",
         "message": "undefined: x"}], format="go", count=1, files=1, summary="1 error in 1 file (go)"),
         input="main.go:3:5: undefined: x\n"),
    step("imports", r'"packages":{"fmt":{"type":"stdlib","count":1,"files":\["m.go"\]}}', like=True, dir=".",
         ext=".go"),
    step("conflicts", json_of(files=[{"file": "c.txt", "conflicts": [{"line": 1, "end_line": 5, "ours_ref": "HEAD",
         "theirs_ref": "br", "ours": "a", "theirs": "b", "context_above": "", "context_below": ""}], "count": 1}],
         total=1, has_diff3=False, summary="Found 1 conflict in 1 file"), file="c.txt"),
    step("transform", '[\n  {\n    "a": 2,\n    "b": "y"\n  }\n]', file="j.json",
         pipeline=[{"op": "filter", "key": "a", "eq": "2"}]),
    step("transform", "2", exec="cat j.json", pipeline=[{"op": "count"}]),
    step("tabcount", r'"lines":\[{"line":1,"tabs":0},{"line":2,"tabs":1}\],"total_lines":2', like=True, file="t.txt",
         end_line=2),
    step("notab", "have not read it", like=True, error=True, file="t.txt"),
    step("read", "total_lines", like=True, file_path="t.txt"),
    step("notab", r'"replacements":2,"lines_changed":2', like=True, file="t.txt"),
    step("split", r'"parts":\[{"file":"\S+/m_001.go","from_line":1,"to_line":2.*m_002.go', like=True, file="m.go",
         lines=[2]),
    step("splice", r'"mode":"insert","lines_spliced":4', like=True, source="m_002.go", target="n.txt", mode="insert",
         line=1),
    step("splice", "splice: mode: input should be", like=True, error=True, source="m.go", target="n.txt",
         mode="middle"),
    step("read", "NUL bytes", like=True, error=True, file_path="u.txt"),
    step("utf8", r'"status":"converted"', like=True, file="u.txt"),
    step("delete", r'"trash_path":"[^"]+".*"restore":"', like=True, path="{dir}/d.txt"),
    Step("cleanDiff", {"file_filter": ["sub"]}, r'"summary":{"files_changed":1,"insertions":1,"deletions":1}',
         like=True, optional=True),
    Step("cleanDiff", {"ref": "--output=/tmp/pwned"}, "ref", like=True, error=True, optional=True),
]
# fmt: on

STEPS = {"buddy": BUDDY, "gofastr": GOFASTR, "hex": HEX, "hygge": HYGGE, "terse": TERSE}
