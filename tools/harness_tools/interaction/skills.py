"""``skill``: load instructions that the operator wrote for agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anyio import to_thread
from pydantic import AliasChoices, Field, model_validator

from harness.errors import FileExists
from harness.toolkit import (
    Category,
    Json,
    MutatingArguments,
    OutputLimit,
    Subject,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
)
from harness.toolkit.session.skills import Skill as Loaded
from harness.toolkit.session.skills import SkillError, SkillFile, SkillInfo, SkillLibrary, SkillList, digest_of
from harness.toolkit.values import Advice

from ..texts import Short

__all__ = ["UPLOADS", "Skill"]

DESCRIPTION = """\
Load a skill: instructions that the operator wrote for a kind of work. Without a name the skills are listed. \
Load a skill before you do its kind of work, and follow it."""
UPLOADS = "~/.local/state/harness/skills"
"""Directory of skill files on the target; each version has its own subdirectory."""
NAMED = 20
"""Maximum skills that the description names."""
NAMED_LENGTH = 160
LIMIT = OutputLimit(60_000, 0)
FILES_SHOWN = Advice(", which file shows and upload copies to the target", ("file", "upload"))
CHANGED = "{path} was changed on the target since it was uploaded, and was kept; move it away to upload it again"


class _Arguments(MutatingArguments):
    name: Short | None = Field(
        None, description="the skill; without it, all are listed", validation_alias=AliasChoices("name", "command")
    )
    file: Short | None = Field(None, description="show this file of the skill instead of its instructions")
    upload: bool = Field(False, description="copy the skill's files to the target, and say where they are")

    @model_validator(mode="after")
    def _named(self) -> _Arguments:
        if self.name is None and (self.file is not None or self.upload):
            raise ValueError("name the skill")
        if self.file is not None and self.upload:
            raise ValueError("give file or upload, not both")
        return self


class Skill(Tool[_Arguments]):
    """``skill``; skills are on harness's machine, and only ``upload`` changes the target."""

    def __init__(self, library: SkillLibrary | None = None) -> None:
        self._library = library or SkillLibrary()
        traits = Traits(
            category=Category.FILE_READ, mutating=True, aliases=("Skill",), packs=("interaction",), limit=LIMIT
        )
        self.there_are = _named(self._library.list().skills)
        super().__init__("skill", DESCRIPTION + self.there_are, _Arguments, traits)

    def traits_of(self, args: _Arguments) -> Traits:
        return self.traits if args.upload else replace(self.traits, mutating=False, parallelizable=True)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return (Subject("write", f"{UPLOADS}/{args.name}"),) if args.upload else super().subjects(args)

    def preview(self, args: _Arguments) -> str | None:
        if not args.upload:
            return None
        try:
            return "\n".join(_listed(self._library.load(args.name or "")))
        except SkillError:
            return None  # the call reports the reason

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        try:
            return await self._done(args, ctx)
        except SkillError as error:
            return ToolResult.failure("no_skill", str(error))

    async def _done(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        if args.name is None:
            return _all(await to_thread.run_sync(self._library.list))
        skill = await to_thread.run_sync(self._library.load, args.name)
        if args.file is not None:
            data = await to_thread.run_sync(self._library.read, skill, args.file)
            return _file(args.file, data)
        if args.upload:
            return await _uploaded(skill, await to_thread.run_sync(_contents, self._library, skill), ctx)
        return _instructions(skill)


# -- showing


def _named(skills: Sequence[SkillInfo]) -> str:
    """Return the skills for the description, because a model does not look for unknown skills. Pure."""
    if not skills:
        return ""
    lines = [f"- {one.name}: {_short(one.description)}" for one in skills[:NAMED]]
    more = [f"- and {len(skills) - NAMED} more"] if len(skills) > NAMED else []
    return "\n".join([" There are:", *lines, *more])


def _short(text: str) -> str:
    return text if len(text) <= NAMED_LENGTH else f"{text[: NAMED_LENGTH - 3]}..."


def _all(found: SkillList) -> ToolResult:
    listed: list[Json] = [
        {"name": one.name, "description": one.description, "origin": one.origin} for one in found.skills
    ]
    data: Json = {"count": len(listed), "skills": listed, "problems": list(found.problems)}
    lines = [f"{one.name}: {one.description}" for one in found.skills] or ["There are no skills"]
    return ToolResult.of("\n".join([*lines, *(f"not usable: {problem}" for problem in found.problems)]), data=data)


def _instructions(skill: Loaded) -> ToolResult:
    info = skill.info
    body = skill.body.replace("</skill", "<\\/skill")  # only harness may close the tag
    lines = [f'<skill name="{info.name}" from="{info.origin}">', body, "</skill>"]
    if skill.files:
        lines += [f"Its files{FILES_SHOWN.text}:", *_listed(skill)]
    if skill.left_out:
        lines.append(f"[{len(skill.left_out)} links and other special files in its directory are omitted]")
    files: list[Json] = [{"path": one.path, "size": one.size, "executable": one.executable} for one in skill.files]
    data: Json = {"name": info.name, "origin": info.origin, "files": files, "left_out": list(skill.left_out)}
    return ToolResult.of("\n".join(lines), data=data, advice=(FILES_SHOWN,))


def _listed(skill: Loaded) -> list[str]:
    return [f"- {one.path} ({one.size} bytes{', executable' if one.executable else ''})" for one in skill.files]


def _file(path: str, data: bytes) -> ToolResult:
    if b"\0" in data:
        return ToolResult.failure(
            "binary", f"{path} is not a text file ({len(data)} bytes); upload copies it to the target"
        )
    return ToolResult.of(
        data.decode("utf-8", "replace") or "(the file is empty)", data={"path": path, "size": len(data)}
    )


# -- copying to the target


Contents = Sequence[tuple[SkillFile, bytes]]


def _contents(library: SkillLibrary, skill: Loaded) -> Contents:
    """Read all files before the first one is written."""
    return [(file, library.read(skill, file.path)) for file in skill.files]


async def _uploaded(skill: Loaded, contents: Contents, ctx: ToolContext) -> ToolResult:
    if not contents:
        return ToolResult.failure("no_files", f"{skill.info.name} has no files to upload")
    where = f"{UPLOADS}/{skill.info.name}/{digest_of(contents)}"
    for file, data in contents:
        if not await _placed(f"{where}/{file.path}", data, 0o700 if file.executable else 0o600, ctx):
            return ToolResult.failure("changed", CHANGED.format(path=f"{where}/{file.path}"))
    directory = (await ctx.execution.stat(where)).path
    paths: list[Json] = [f"{directory}/{file.path}" for file, _ in contents]
    text = "\n".join([f"The files of {skill.info.name} are in {directory}:", *_listed(skill)])
    return ToolResult.of(text, data={"directory": directory, "files": paths})


async def _placed(path: str, data: bytes, permissions: int, ctx: ToolContext) -> bool:
    """Write a new file; return False if a different one exists, which was changed after an upload."""
    try:
        await ctx.execution.write_file(path, data, mode="create", permissions=permissions)
    except FileExists:
        return (await ctx.execution.read_file(path)).data == data
    return True
