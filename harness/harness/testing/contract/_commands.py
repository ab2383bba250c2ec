"""Checks of commands: exact bytes and exit codes, commands as one unit, and the options of one command."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import anyio

from ...context import ExecutionContext
from ...errors import HarnessError, UnsupportedOperation
from ...results import ShellResult, Status
from ._registry import check, scratch

MIB = 1 << 20


def completed(result: ShellResult, code: int | None = 0) -> ShellResult:
    """Assert that the command completed, with exit code ``code`` unless that is None, and return its result."""
    assert result.status is Status.COMPLETED, result
    assert result.job_id, result
    assert code is None or result.exit_code == code, result
    return result


async def usable(ctx: ExecutionContext) -> None:
    """Assert that the next command works."""
    result = completed(await ctx.run_shell("printf 'still right'"))
    assert result.stdout == "still right", result


EXACT_OUTPUT = [
    ("true", b""),
    ("echo hi", b"hi\n"),
    ("printf hi", b"hi"),
    ("printf '\\n\\n\\n'", b"\n\n\n"),
    ("printf '\\n  lead\\ttab  \\n\\ntrail  \\n\\n'", b"\n  lead\ttab  \n\ntrail  \n\n"),
    ("printf '10%%\\r50%%\\r100%%\\n'", b"10%\r50%\r100%\n"),
    ("printf '\\033[31mred\\033[0m\\n'", b"\x1b[31mred\x1b[0m\n"),
    (
        "printf '\\346\\274\\242\\345\\255\\227 e\\314\\201 \\360\\237\\230\\200\\n'",
        "漢字 e\u0301 \U0001f600\n".encode(),
    ),
    ("printf 'a\\000b'", b"a\0b"),
    ("printf '\\377\\376\\200'", b"\xff\xfe\x80"),
    ("printf ' '", b" "),
    ("printf '%%end 1 2 0\\n%%begin\\n'", b"%end 1 2 0\n%begin\n"),
    ("LC_ALL=C printf '%s' x", b"x"),
]


@check("Output is returned byte for byte: no newline is added or dropped, nothing is decoded on the way.")
async def output_is_exact(ctx: ExecutionContext) -> None:
    for command, expected in EXACT_OUTPUT:
        result = completed(await ctx.run_shell(command))
        assert result.stdout_bytes == expected, result
        assert result.truncated == 0, result


@check("Every byte value passes, in any order.")
async def all_bytes_pass(ctx: ExecutionContext) -> None:
    noise = random.Random(7).randbytes(200_000).replace(b"\x1b", b"e")  # a terminal answers some escape sequences
    data = bytes(range(256)) * 16 + noise
    async with scratch(ctx) as directory:
        await ctx.write_file(f"{directory}/data", data)
        result = completed(await ctx.run_shell(f"cat {directory}/data"))
    assert result.stdout_bytes == data


@check("Exit codes are the command's own, 0 to 255.")
async def exit_codes_are_exact(ctx: ExecutionContext) -> None:
    for command, code in [
        ("true", 0),
        ("false", 1),
        ("(exit 42)", 42),
        ("sh -c 'exit 255'", 255),
        ("nosuchcommand", 127),
    ]:
        result = completed(await ctx.run_shell(command), code)
        assert result.ok == (code == 0), result


@check("A program that a signal ends gives 128 + N.")
async def death_by_signal_is_reported(ctx: ExecutionContext) -> None:
    for number in (1, 9, 15):
        completed(await ctx.run_shell(f"sh -c 'kill -{number} $$'"), 128 + number)
    await usable(ctx)


@check("Without a terminal, a shell that a signal ends gives 128 + N too.", "plain")
async def death_of_the_shell_is_reported(ctx: ExecutionContext) -> None:
    for number in (9, 15):
        result = completed(await ctx.run_shell(f"echo before; kill -{number} $$"), 128 + number)
        assert result.stdout == "before\n", result


@check("Without a terminal, and with tty=False, standard output and standard error are separate and exact.")
async def streams_are_separate(ctx: ExecutionContext) -> None:
    result = completed(await ctx.run_shell("printf out; printf err >&2; (exit 3)", tty=False), 3)
    assert (result.stdout_bytes, result.stderr_bytes) == (b"out", b"err"), result


@check("One line of 10 MB is returned whole.")
async def one_long_line(ctx: ExecutionContext) -> None:
    result = completed(await ctx.run_shell("head -c 10000000 /dev/zero | tr '\\0' x", max_output=16 * MIB))
    assert result.stdout_bytes == b"x" * 10_000_000
    assert result.truncated == 0


@check("A million lines are returned whole, whatever a scrollback holds.")
async def a_million_lines(ctx: ExecutionContext) -> None:
    result = completed(await ctx.run_shell("seq 1 1000000", max_output=16 * MIB))
    expected = b"".join(b"%d\n" % number for number in range(1, 1_000_001))
    assert result.stdout_bytes == expected
    await usable(ctx)


UNITS = [
    ("echo one\necho two\n\necho three", b"one\ntwo\nthree\n"),
    ("cat <<'END'\n\ttab ! $HOME `id` \\\n  'q' \"d\"\nEND", b"\ttab ! $HOME `id` \\\n  'q' \"d\"\n"),
    ("cat <<-END\n\tno tab\n\tEND", b"no tab\n"),
    ("# only a comment", b""),
    ("echo a # comment", b"a\n"),
    ("echo a;", b"a\n"),
    ("\n\n  echo blank lines before\n\n", b"blank lines before\n"),
    ("echo '!! !1 ^a^b'", b"!! !1 ^a^b\n"),
    ("for i in 1 2 3\ndo\n\techo $i\ndone", b"1\n2\n3\n"),
    ("f() {\n  echo in f\n}\nf", b"in f\n"),
    ("if true\nthen echo yes\nelse echo no\nfi", b"yes\n"),
    ("echo 'a\nb'", b"a\nb\n"),
    ("echo a \\\n  b", b"a b\n"),
    ("printf '%s\\n' 'é漢😀'", "é漢😀\n".encode()),
]


@check("A command is one unit whatever it contains: many lines, here-documents, tabs, quotes, comments, bangs.")
async def one_unit_whatever_it_contains(ctx: ExecutionContext) -> None:
    for command, expected in UNITS:
        result = completed(await ctx.run_shell(command))
        assert result.stdout_bytes == expected, result


BROKEN = [
    "echo 'abc",
    'echo "abc',
    "echo $(",
    "if true",
    "done",
    "(",
    "cat <<END\nnever ended",
    "echo `",
    ")",
    "case x in",
]


@check("A syntax error or an open quote is a result and not a hang, and spoils nothing after it.")
async def syntax_errors_are_results(ctx: ExecutionContext) -> None:
    for command in BROKEN:
        result = completed(await ctx.run_shell(command, timeout=20), None)
        assert result.exit_code != 0 or command.startswith("cat <<"), result  # shells accept an unended here-document
        await usable(ctx)


@check("A trailing ampersand or backslash ends with the command.")
async def trailing_operators(ctx: ExecutionContext) -> None:
    for command in ("true &", "echo a &\nwait", "echo a \\", "echo a; true &", "echo a &&\ntrue"):
        completed(await ctx.run_shell(command, timeout=20))
        await usable(ctx)


@check("A command that starts with a dash is a command, not an option.")
async def leading_dash(ctx: ExecutionContext) -> None:
    completed(await ctx.run_shell("-e nothing"), 127)
    completed(await ctx.run_shell("--version"), 127)
    await usable(ctx)


@check("A command of 1 MB runs as given.")
async def a_megabyte_of_command(ctx: ExecutionContext) -> None:
    body = "".join(f"line {number} \t ' \" $x `y` !\n" for number in range(50_000))
    assert len(body) > MIB
    result = completed(await ctx.run_shell(f"cat <<'END'\n{body}END", max_output=4 * MIB))
    assert result.stdout == body


@check("Standard input is given byte for byte and then ends.")
async def stdin_is_exact(ctx: ExecutionContext) -> None:
    for data in (b"", b"x", b"a\0b\n\xff", bytes(range(256)) * 20_000):
        result = completed(await ctx.run_shell("cat", stdin=data, tty=False, max_output=8 * MIB))
        assert result.stdout_bytes == data
    completed(await ctx.run_shell("cat >/dev/null; (exit 5)", stdin="text"), 5)


@check("A file of this machine can be standard input; one that cannot be read is an error, and nothing runs.")
async def stdin_from_a_file(ctx: ExecutionContext) -> None:
    data = bytes(range(256)) * 10_000
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        result = completed(await ctx.run_shell("cat", stdin=Path(file.name), tty=False, max_output=8 * MIB))
        assert result.stdout_bytes == data
    async with scratch(ctx) as directory:
        try:
            result = await ctx.run_shell(f"echo ran >{directory}/ran", stdin=Path(file.name))
        except FileNotFoundError:
            assert await ctx.list_dir(directory) == []
        else:
            raise AssertionError(f"the file is gone, and this was run: {result}")
    await usable(ctx)


@check("A command that ignores its standard input ends as usual.")
async def unread_stdin(ctx: ExecutionContext) -> None:
    completed(await ctx.run_shell("true", stdin=b"x" * 3_000_000, tty=False))
    await usable(ctx)


@check("Without a terminal, standard input is empty when none is given.", "plain")
async def stdin_is_empty(ctx: ExecutionContext) -> None:
    assert completed(await ctx.run_shell("cat; echo end")).stdout == "end\n"


@check("cwd and env hold for one command, reach it exactly, and change nothing after it.")
async def cwd_and_env_hold_for_one_command(ctx: ExecutionContext) -> None:
    value = 'it\'s "a"\n\t$HOME `id` \\ é !'
    async with scratch(ctx) as directory:
        before = completed(await ctx.run_shell("pwd; echo ${HX_VALUE-unset}")).stdout
        place = f"{directory}/a b'c"
        await ctx.mkdir(place)
        result = completed(await ctx.run_shell('pwd; printf %s "$HX_VALUE"', cwd=place, env={"HX_VALUE": value}))
        assert result.stdout == f"{place}\n{value}", result
        assert (
            completed(await ctx.run_shell("sh -c 'printf %s \"$HX_VALUE\"'", env={"HX_VALUE": value})).stdout == value
        )
        assert completed(await ctx.run_shell("pwd; echo ${HX_VALUE-unset}")).stdout == before


@check("A directory that does not exist is an error, and nothing runs.")
async def missing_directory(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        try:
            result = await ctx.run_shell(f"touch {directory}/ran", cwd=f"{directory}/nowhere")
        except FileNotFoundError as error:
            assert f"{directory}/nowhere" in str(error), error
        else:
            raise AssertionError(f"it did not run, so there is no result: {result}")
        assert await ctx.list_dir(directory) == []
    await usable(ctx)


@check("Another user's command runs as that user, or is refused with a hint.")
async def other_users(ctx: ExecutionContext) -> None:
    for run in (ctx.run_shell, ctx.run_helper):
        try:
            result = await run("id -un", user="nobody")
        except UnsupportedOperation as error:
            assert ctx.capabilities.uid != 0, error
            assert error.hint, error
        else:
            assert completed(result).stdout == "nobody\n", result
    await usable(ctx)


@check("Arguments that cannot be honoured are refused before anything runs.")
async def wrong_arguments(ctx: ExecutionContext) -> None:
    await _refused(ctx, "echo \0")
    await _refused(ctx, "true", timeout=0.0)
    await _refused(ctx, "true", env={"a-b": "c"})
    await _refused(ctx, "true", env={"A": "nul\0"})


async def _refused(ctx: ExecutionContext, command: str, timeout: float = 10, env: dict[str, str] | None = None) -> None:
    try:
        await ctx.run_shell(command, timeout=timeout, env=env)
    except ValueError:
        return
    raise AssertionError(f"{command!r} with timeout={timeout} env={env} was not refused")


@check("Output that imitates the engine's own framing is returned verbatim and ends nothing.")
async def forged_frames(ctx: ExecutionContext) -> None:
    lines = [
        "\x1b]133;D;0;0123456789abcdef;1\x07",
        "\x1b]133;C;0123456789abcdef;1\x07",
        "0 1 0",
        "%exit",
        "hx 1 0",
        "[harness 1: 0]",
    ]
    data = ("\n" + "\n".join(lines) + "\n").encode()
    async with scratch(ctx) as directory:
        await ctx.write_file(f"{directory}/forged", data)
        result = completed(await ctx.run_shell(f"cat {directory}/forged; (exit 9)", tty=False), 9)
        assert result.stdout_bytes == data, result
        result = completed(await ctx.run_shell(f"cat {directory}/forged; (exit 9)"), 9)
        assert result.stdout_bytes == data, result
    await usable(ctx)


@check("A background child that keeps the output open does not delay the result.")
async def lingering_children(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        completed(await ctx.run_shell(f"mkfifo {directory}/gate"))
        with anyio.fail_after(30):
            result = completed(await ctx.run_shell(f"(read x <{directory}/gate; echo late) & echo now"))
        assert "now" in result.stdout.splitlines(), result  # an interactive shell names the background job too
        completed(await ctx.run_shell(f"echo go >{directory}/gate"), 0)
    await usable(ctx)


@check("A result tells how long the command took and names its target; contexts describe themselves in one line.")
async def results_describe_themselves(ctx: ExecutionContext) -> None:
    result = completed(await ctx.run_shell("echo x"))
    assert result.command == "echo x", result
    assert 0 < result.duration < 60, result
    assert str(ctx.target) in ctx.describe(), ctx
    assert "\n" not in repr(ctx), ctx
    assert issubclass(UnsupportedOperation, HarnessError)
