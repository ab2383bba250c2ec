"""The files directly in some directories that may hold a text: one script, and what it printed."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.errors import FileError, FileNotFound, PermissionDenied
from harness.toolkit import ToolContext

from .contents import ALL_BYTES, Contents, fetch, fetch_words, take_frame
from .frames import frames_of, text_of
from .patterns import rough_name
from .treescripts import needs

__all__ = ["Place", "check_script", "look_here", "read_places"]

REASONS = {
    "missing": ("file_not_found", "no such file or directory"),
    "denied": ("permission_denied", "permission denied"),
    "directory": ("not_a_directory", "it is not a directory; name it as a file"),
    "file": ("not_a_file", "it is not a file; name it as a directory"),
}


@dataclass(slots=True)
class Place:
    """A directory or a file that was asked for, its absolute path, and what was found there.

    ``refusal``: why it could not be searched; empty when it was.
    """

    given: str
    path: str
    is_dir: bool
    real: str = ""
    contents: Contents = field(default_factory=Contents)
    refusal: str = ""

    @property
    def code(self) -> str:
        """The refusal, for programs."""
        return REASONS[self.refusal][0]

    @property
    def reason(self) -> str:
        """The refusal, in words."""
        return REASONS[self.refusal][1]


def check_script(places: Sequence[Place], part: str, ext: str | None, *, folds: bool) -> str:
    """The script: of each place ``D``, then ``X`` and why not, or ``R``, the real directory and contents. Pure.

    Args:
        part: a text of one line that the files hold, empty for any.
    """
    flags = "-F -i" if folds else "-F"
    one = f'for f do if grep -q {flags} -e "$L" -- "$f"; then printf "%s\\0" "$f"; fi; done'
    looks = "\n".join(_look(place, ext) for place in places)
    return f"""\
{needs("find", "grep", "head", "tr", "wc", "xargs")}\
find / -prune -print0 >/dev/null 2>&1 || {{ printf 'Xengine\\0'; exit 0; }}
LC_ALL=C; export LC_ALL; unset GREP_OPTIONS CDPATH
L={shlex.quote(part)}; export L
null=; grep -c --null -e x -- /dev/null >/dev/null 2>&1; [ $? -eq 1 ] && null=1
holding() {{
  if [ -z "$L" ]; then cat
  elif [ -n "$null" ]; then xargs -0 grep -l --null {flags} -e "$L" -- /dev/null
  else xargs -0 sh -c {shlex.quote(one)} sh; fi
}}
contents() {{ holding | xargs -0 {fetch_words()}; }}
refuse() {{ if [ ! -e "$1" ]; then printf 'Xmissing\\0'; else printf 'X%s\\0' "$2"; fi; }}
{{ {looks}
}} 2>/dev/null | head -c {ALL_BYTES}"""


def _look(place: Place, ext: str | None) -> str:
    path = shlex.quote(place.path)
    if place.is_dir:
        names = f" -name {shlex.quote('*' + rough_name(ending_of(ext)))}" if ext else ""
        return f"""\
printf 'D\\0'
if [ ! -d {path} ]; then refuse {path} directory
elif ! [ -r {path} ] || ! [ -x {path} ]; then printf 'Xdenied\\0'
else ( cd -P {path} && printf 'R%s\\0' "$PWD" && find . ! -name . -prune -type f{names} -print0 | contents ); fi"""
    directory, name = shlex.quote(posixpath.dirname(place.path) or "/"), shlex.quote(f"./{_last(place.path)}")
    return f"""\
printf 'D\\0'
if [ ! -f {path} ]; then refuse {path} file
elif [ ! -r {path} ]; then printf 'Xdenied\\0'
else ( cd -P {directory} && printf 'R%s\\0' "$PWD" && printf '%s\\0' {name} | contents ); fi"""


def _last(path: str) -> str:
    return posixpath.basename(path.rstrip("/"))


def ending_of(ext: str) -> str:
    """With the dot that may be left out."""
    return ext if ext.startswith(".") else f".{ext}"


def read_places(output: bytes, places: Sequence[Place]) -> None:
    """Tell the places what was printed of them."""
    waiting = list(places)
    place = waiting[0]
    frames = frames_of(output)
    is_cut = len(output) >= ALL_BYTES
    for frame in frames:
        if frame == b"D":
            place = waiting.pop(0)
        elif frame.startswith(b"X"):
            place.refusal = text_of(frame[1:])
        elif frame.startswith(b"R"):
            place.real = text_of(frame[1:])
        else:
            take_frame(place.contents, frame, frames)
    place.contents.is_cut = is_cut


async def look_here(ctx: ToolContext, place: Place, ext: str | None) -> None:
    """The same without programs of the target."""
    try:
        if place.is_dir:
            entries = await ctx.execution.list_dir(place.path)
            names = [entry.name for entry in entries if entry.type == "file"]
            place.real = (await ctx.execution.stat(place.path)).path
        else:
            place.real, names = posixpath.dirname(place.path), [_last(place.path)]
            await ctx.execution.stat(place.path)
    except FileNotFound:
        place.refusal = "missing"
    except PermissionDenied:
        place.refusal = "denied"
    except FileError:
        place.refusal = "directory" if place.is_dir else "file"
    else:
        wanted = [name for name in names if not place.is_dir or ext is None or name.endswith(ending_of(ext))]
        encoded = [b"./" + name.encode("utf-8", "surrogateescape") for name in wanted]
        place.contents = await fetch(ctx, place.real, encoded)
