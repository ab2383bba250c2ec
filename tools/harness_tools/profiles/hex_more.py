"""The profile ``hex``, without files, commands and search: the user, the web, agents and skills."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from harness.toolkit import Arguments, Json, JsonObject, ToolResult
from harness.toolkit.profiles import Face, Shown

from ..task import type_choices, type_lines
from .forms import facts, items, skills_there_are, text_of

__all__ = ["FACES"]

ICONS = {"pending": "☐", "in_progress": "⏳", "completed": "✅"}
LONGEST_TASK = 1_800


# -- the user


class _Option(Arguments):
    label: str = Field(description="The answer, in a few words")
    description: str = Field("", description="What choosing it means")


class _Question(Arguments):
    question: str = Field(description="The whole question")
    header: str = Field(description="A word or two that name it")
    options: list[_Option] = Field(min_length=2, max_length=4, description="The answers to choose from")
    multiSelect: bool = Field(False, description="Several may be chosen")


class _Ask(Arguments):
    questions: list[_Question] = Field(min_length=1, max_length=4, description="What to ask")

    @model_validator(mode="before")
    @classmethod
    def _no_answers(cls, values: Any) -> Any:
        """Answers come from the user; Hex had its front end put them here, and never the model."""
        if isinstance(values, dict):
            return {name: value for name, value in values.items() if name != "answers"}
        return values


def _asked(args: _Ask) -> JsonObject:
    return {"questions": [_with_own_names(question.model_dump()) for question in args.questions]}


def _with_own_names(question: dict[str, Json]) -> Json:
    return {"multi_select" if name == "multiSelect" else name: value for name, value in question.items()}


def _responses(args: _Ask, result: ToolResult) -> Shown | None:
    """What the user answered, in the form of Hex: each question with its answers, and ``Other:`` before own words."""
    if result.is_error:
        return None
    lines = [f"{text_of(one, 'question')}: {', '.join(_answers(one))}" for one in items(facts(result), "answers")]
    return Shown("\n".join(["User responses:", "", *lines]))


def _answers(answered: Mapping[str, Json]) -> Iterator[str]:
    chosen, other = answered.get("chosen"), text_of(answered, "other")
    yield from (str(label) for label in (chosen if isinstance(chosen, list) else ()))
    if other:
        yield f"Other: {other}"


ASK = Face(
    tool="ask_user_question",
    name="ask_user_question",
    description="Ask the user one to four questions with answers to choose from, and wait.",
    arguments=_Ask,
    more=_asked,
    told={"questions": "questions", "multiSelect": "multi_select"},
    render=_responses,
)


class _Todo(Arguments):
    content: str = Field(description="What is to be done")
    activeForm: str = Field(description="How it is called while it is done")
    status: Literal["pending", "in_progress", "completed"] = Field(description="How far it is")


class _Todos(Arguments):
    todos: list[_Todo] = Field(min_length=1, description="The whole list")


def _listed(args: _Todos) -> JsonObject:
    return {
        "todos": [
            {"content": todo.content, "active_form": todo.activeForm or None, "status": todo.status}
            for todo in args.todos
        ]
    }


def _icons(args: _Todos, result: ToolResult) -> Shown | None:
    if result.is_error:
        return None
    return Shown("\n".join(_line(text_of(one, "status"), one) for one in items(facts(result), "todos")))


def _line(status: str, todo: Any) -> str:
    name = "active_form" if status == "in_progress" else "content"
    return f"{ICONS[status]} {text_of(todo, name) or text_of(todo, 'content')}"


TODO = Face(
    tool="todo_write",
    name="todo_write",
    description="Write the list of things to do, all of it each time.",
    arguments=_Todos,
    more=_listed,
    told={"todos": "todos", "activeForm": "active_form"},
    render=_icons,
)


class _Skill(Arguments):
    command: str = Field(description="The skill's name")


SKILL = Face(
    tool="skill",
    name="Skill",
    description="Load the instructions of a skill.",
    arguments=_Skill,
    fields={"command": "name"},
    further=skills_there_are,
)


# -- the web


class _Fetch(Arguments):
    url: str = Field(description="URL, http or https")
    prompt: str = Field(description="What you want to know of it")


FETCH = Face(
    tool="fetch_url",
    name="web_fetch",
    description="Fetch a page from the web as Markdown.",
    arguments=_Fetch,
    fields={"url": "url", "prompt": "prompt"},
)


class _Search(Arguments):
    query: str = Field(description="What to search for")
    limit: int = Field(10, ge=1, description="How many results at most")
    allowed_domains: list[str] = Field([], description="Only results of these domains")
    blocked_domains: list[str] = Field([], description="No results of these domains")


SEARCH = Face(
    tool="web_search",
    name="web_search",
    description="Search the web.",
    arguments=_Search,
    fields={name: name for name in _Search.model_fields},
)


# -- agents


class _Task(Arguments):
    prompt: str = Field(description="The task")
    description: str = Field(description="A few words that name it")
    subagent_type: str = Field(description="Kind of agent")
    model: str | None = Field(None, description="The model to use")
    resume: str | None = Field(None, description="The agent to go on with")
    timeout: float = Field(300, gt=0, description=f"Seconds, {LONGEST_TASK} at most")


TYPE_NAMES = {"general": "general-purpose", "explore": "Explore", "plan": "Plan", "reviewer": "code-reviewer"}
TASK = Face(
    tool="task",
    name="task",
    description="Give a task to an agent of its own, and return its last words.",
    arguments=_Task,
    fields={name: name for name in _Task.model_fields if name != "timeout"},
    more=lambda args: {"timeout": math.ceil(min(args.timeout, LONGEST_TASK))},
    told={"timeout": "timeout"},
    further=lambda tool: type_lines(tool, TYPE_NAMES),
    choices=lambda tool: type_choices(tool, TYPE_NAMES),
)

FACES: tuple[Face[Any], ...] = (ASK, TODO, SKILL, FETCH, SEARCH, TASK)
