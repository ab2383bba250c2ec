"""Parser that finds every simple command in a command text, with the grammar of bash (tree-sitter).

It visits the whole tree: lists, pipelines, groups, loops, functions, substitutions and here-documents.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ....extras import install_extra
from .strict_text import parse_strict
from .words import Input, ParsedCommand, Redirect, ShellParse, Word, hides_substitution, word_of

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

__all__ = ["ShellParserMissing", "scan"]

DEPTH = 60
"""Maximum depth of the syntax tree; usual commands have a tenth of it."""
_TERMINAL = Input()
_PIPE = Input("pipe")
_local = threading.local()

_WALKED = frozenset(
    [
        *("program", "list", "compound_statement", "subshell", "if_statement", "elif_clause", "else_clause"),
        *("while_statement", "do_group", "negated_command", "command_substitution", "process_substitution"),
    ]
)
_WORDS = frozenset(
    [
        *("word", "number", "concatenation", "string", "raw_string", "ansi_c_string", "translated_string"),
        *("simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion"),
        *("brace_expression", "variable_name", "extglob_pattern", "regex", "special_variable_name"),
    ]
)


class ShellParserMissing(Exception):
    """The parser is not installed."""


def _parser() -> Parser:
    """Return the parser of this thread: a parser keeps state during a parse."""
    parser: Parser | None = getattr(_local, "parser", None)
    if parser is None:
        try:
            import tree_sitter
            import tree_sitter_bash
        except ImportError as error:
            raise ShellParserMissing(
                f"the shell command parser is not installed ({install_extra('policy')})"
            ) from error
        parser = _local.parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    return parser


def scan(text: str) -> ShellParse:
    """Find everything that the text would run.

    Args:
        text: the command.

    Returns:
        The commands found, with what is not understood.

    Raises:
        ShellParserMissing: the parser is not installed.
    """
    source = text.encode("utf-8")
    tree = _parser().parse(source)
    walk = _Walk(source)
    if tree is None or tree.root_node.has_error:
        walk.scan.unknown.append("it is not a complete command in the shell grammar")
    if tree is not None:
        walk.visit(tree.root_node, _TERMINAL, 0)
    return walk.scan


class _Walk:
    """One traversal of a syntax tree."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.scan = ShellParse()
        self._loops: tuple[tuple[str, tuple[Word, ...]], ...] = ()
        self._handlers: dict[str, Callable[[Node, Input, int], None]] = {
            "command": self._command,
            "redirected_statement": self._redirected,
            "pipeline": self._pipeline,
            "declaration_command": self._declaration,
            "unset_command": self._declaration,
            "test_command": self._test,
            "variable_assignment": self._assignments,
            "variable_assignments": self._assignments,
            "for_statement": self._loop,
            "c_style_for_statement": self._arithmetic,
            "function_definition": self._function,
            "case_statement": self._case,
            "comment": lambda node, given, depth: None,
        }

    def visit(self, node: Node, given: Input, depth: int) -> None:
        """Record what a node runs; ``given`` is its standard input."""
        if depth > DEPTH:
            self.scan.unknown.append("it is nested too deeply")
            return
        handler = self._handlers.get(node.type)
        if handler is not None:
            handler(node, given, depth)
        elif node.type in _WALKED:
            self._children(node, given, depth)
        elif node.is_named:
            self.scan.doubts.append(f"{node.type.replace('_', ' ')} is not classified")
            self._inner(node, depth)

    def _children(self, node: Node, given: Input, depth: int) -> None:
        for child in node.named_children:
            self.visit(child, given, depth + 1)

    def _inner(self, node: Node, depth: int) -> None:
        """Visit all substitutions inside a word or an expression."""
        for inner in self._substitutions(node, depth):
            files = [child for child in inner.named_children if child.type == "file_redirect"]  # $(< file)
            if files:
                self._record(ParsedCommand(self._text(inner), redirects=self._redirects(files, depth)), inner, [])
            self._children(inner, _TERMINAL, depth + 1)

    def _substitutions(self, node: Node, depth: int) -> Iterator[Node]:
        if depth > DEPTH:
            self.scan.unknown.append("it is nested too deeply")
            return
        if node.type in ("command_substitution", "process_substitution"):
            yield node
            return
        for child in node.named_children:
            yield from self._substitutions(child, depth + 1)

    def _text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    # -- commands

    def _command(self, node: Node, given: Input, depth: int) -> None:
        self._simple(node, [], given, depth)

    def _redirected(self, node: Node, given: Input, depth: int) -> None:
        body = node.child_by_field_name("body")
        redirects = [child for child in node.named_children if child.type.endswith("_redirect")]
        taken = self._input(redirects, given)
        if body is not None and body.type == "command":
            self._simple(body, redirects, given, depth)
            self._behind(redirects, depth)
            return
        if body is not None:
            self.visit(body, taken, depth + 1)
        self._record(
            ParsedCommand(self._text(node), redirects=self._redirects(redirects, depth), input=taken), node, []
        )
        self._behind(redirects, depth)

    def _simple(self, node: Node, outer: list[Node], given: Input, depth: int) -> None:
        words: list[tuple[int, Word]] = []
        assigned: list[tuple[str, Word]] = []
        shape: list[tuple[int, str]] = []
        redirects = [*outer]
        for child in node.named_children:
            if child.type.endswith("_redirect"):
                redirects.append(child)
            elif child.type == "variable_assignment":
                assigned.append(self._assignment(child, depth))
                shape.append((child.start_byte, self._text(child)))
            elif child.type != "comment":
                words.append((child.start_byte, self._word(child, depth)))
        for redirect in redirects:
            words += [(extra.start_byte, self._word(extra, depth)) for extra in _extra_words(redirect)]
        words.sort(key=lambda pair: pair[0])
        found = ParsedCommand(
            text=self._text(node),
            words=tuple(word for _, word in words),
            assigned=tuple(assigned),
            redirects=self._redirects(redirects, depth),
            input=self._input(redirects, given),
        )
        raws = [raw for _, raw in sorted([*shape, *((at, word.raw) for at, word in words)])]
        self._record(found, node, raws)

    def _record(self, found: ParsedCommand, node: Node, shape: list[str]) -> None:
        self.scan.found.append(replace(found, loops=self._loops))
        if shape:
            self.scan.shapes.append((node.start_byte, tuple(shape)))

    def _word(self, node: Node, depth: int) -> Word:
        if node.type == "command_name" and node.named_child_count == 1:
            node = node.named_children[0]
        self._inner(node, depth)
        if self.source[node.end_byte : node.end_byte + 2] == b"\\\n":
            self.scan.unknown.append("a line continues inside a word")
        if hides_substitution(node, self.source):
            self.scan.unknown.append("the shell grammar does not recognize a substitution in it")
        return word_of(node, self.source) if node.type in _WORDS else Word.unknown(self._text(node))

    def _assignment(self, node: Node, depth: int) -> tuple[str, Word]:
        self._inner(node, depth)
        if hides_substitution(node, self.source):
            self.scan.unknown.append("the shell grammar does not recognize a substitution in it")
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        label = self._text(name) if name is not None else "?"
        if value is None:
            return label, Word.of("")
        return label, word_of(value, self.source) if value.type in _WORDS else Word.unknown(self._text(value))

    def _assignments(self, node: Node, given: Input, depth: int) -> None:
        parts = [node] if node.type == "variable_assignment" else node.named_children
        pairs = tuple(self._assignment(part, depth) for part in parts)
        self._record(
            ParsedCommand(self._text(node), assigned=pairs, input=given), node, [self._text(part) for part in parts]
        )

    def _pipeline(self, node: Node, given: Input, depth: int) -> None:
        for child in node.named_children:
            self.visit(child, given, depth + 1)
            simple = child.type == "command" and bool(self.scan.found)
            given = Input("pipe", source=self.scan.found[-1].words) if simple else _PIPE

    def _declaration(self, node: Node, given: Input, depth: int) -> None:
        self._inner(node, depth)
        words = tuple(Word.of(self._text(child)) for child in node.children)
        found = ParsedCommand(self._text(node), words, input=given, special="it changes the shell's variables")
        self._record(found, node, [word.raw for word in words])

    def _test(self, node: Node, given: Input, depth: int) -> None:
        self._inner(node, depth)
        text = self._text(node)
        reading = parse_strict(text)
        whole = not reading.redirects and (len(reading.commands) == 1 or (bool(reading.commands) and "$(" in text))
        words = tuple(_tested(raw) for raw in reading.commands[0][1]) if whole and not reading.reason else ()
        special = "" if words else "shells parse the condition differently"
        self._record(ParsedCommand(text, words or (Word.of(text.split()[0]),), input=given, special=special), node, [])
        if words:
            self.scan.shapes.append((node.start_byte, tuple(word.raw for word in words)))

    def _loop(self, node: Node, given: Input, depth: int) -> None:
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = node.children_by_field_name("value")
        words = [self._word(value, depth) for value in values]
        label = self._text(name) if name is not None else "?"
        assigned = ((label, Word.unknown("the values of the loop")),)
        found = ParsedCommand(f"for {label}", assigned=assigned, input=given, values=tuple(words))
        self._record(found, node, [self._text(node).split(None, 1)[0], label, *(word.raw for word in words)])
        if body is not None:
            around, self._loops = self._loops, (*self._loops, (label, tuple(words)))
            self.visit(body, given, depth + 1)
            self._loops = around

    def _arithmetic(self, node: Node, given: Input, depth: int) -> None:
        self.scan.doubts.append("arithmetic may run a command in a variable")
        self._inner(node, depth)
        body = node.child_by_field_name("body")
        if body is not None:
            self.visit(body, given, depth + 1)

    def _function(self, node: Node, given: Input, depth: int) -> None:
        self._record(ParsedCommand(self._text(node), special="it defines a function", input=given), node, [])
        for child in node.named_children[1:]:
            if child.type.endswith("_redirect"):
                self._record(ParsedCommand(self._text(child), redirects=self._redirects([child], depth)), child, [])
            else:
                self.visit(child, given, depth + 1)

    def _case(self, node: Node, given: Input, depth: int) -> None:
        self.scan.doubts.append("case differs between shells")
        for child in node.named_children:
            if child.type != "case_item":
                self._inner(child, depth)
                continue
            for part in child.named_children:
                if part.type in _WORDS:
                    self._inner(part, depth)
                else:
                    self.visit(part, given, depth + 1)

    # -- redirections

    def _redirects(self, nodes: list[Node], depth: int) -> tuple[Redirect, ...]:
        taken: list[Redirect] = []
        for node in nodes:
            if node.type == "file_redirect":
                taken.append(self._file(node, depth))
                continue
            self._inner_of_text(node, depth)
            taken += self._redirects([part for part in node.named_children if part.type == "file_redirect"], depth)
        return tuple(taken)

    def _file(self, node: Node, depth: int) -> Redirect:
        operator = next((child.type for child in node.children if not child.is_named), "?")
        places = node.children_by_field_name("destination")
        if not places:
            return Redirect(operator)
        word = self._word(places[0], depth)
        if operator in (">&", "<&") and word.known and (word.text.isdigit() or word.text == "-"):
            return Redirect(operator)
        self.scan.targets.append((places[0].start_byte, word.raw))
        return Redirect(operator, word)

    def _inner_of_text(self, node: Node, depth: int) -> None:
        """Visit the substitutions in a here-document or here-string."""
        for child in node.named_children:
            if child.type in ("heredoc_body", *_WORDS):
                self._inner(child, depth)

    def _behind(self, nodes: list[Node], depth: int) -> None:
        """Visit commands after the start mark of a here-document: ``<<EOF | sh``, ``<<EOF && rm x``."""
        for node in nodes:
            if node.type != "heredoc_redirect":
                continue
            for child in node.named_children:
                if not child.type.startswith("heredoc_") and child.type != "file_redirect" and child.type not in _WORDS:
                    self.visit(child, _PIPE, depth + 1)

    def _input(self, nodes: list[Node], given: Input) -> Input:
        for node in nodes:
            if node.type == "heredoc_redirect":
                given = Input("text", self._document(node))
            elif node.type == "herestring_redirect":
                word = word_of(node.named_children[-1], self.source)
                given = Input("text", word.text if word.known else None)
            elif any(child.type == "<" for child in node.children):
                given = Input("file")
            elif any(child.type in ("<&", "<>") for child in node.children):
                given = _PIPE
        return given

    def _document(self, node: Node) -> str | None:
        body = next((child for child in node.named_children if child.type == "heredoc_body"), None)
        mark = next((child for child in node.named_children if child.type == "heredoc_start"), None)
        text = self._text(body) if body is not None else ""
        quoted = mark is not None and any(character in self._text(mark) for character in "'\"\\")
        if not quoted and any(character in text for character in "$`\\"):
            return None
        return "\n".join(line.lstrip("\t") for line in text.split("\n"))


def _extra_words(redirect: Node) -> list[Node]:
    """Return the arguments after a redirection, which the grammar parses as more destinations."""
    return redirect.children_by_field_name("destination")[1:] if redirect.type == "file_redirect" else []


def _tested(raw: str) -> Word:
    """Return a word of a condition; it is known if it contains nothing special."""
    if raw.replace("/", "").replace(".", "").replace("-", "").replace("_", "").isalnum() or raw in "[] [[ ]] = != ! -":
        return Word.of(raw)
    if len(raw) > 1 and raw[0] == raw[-1] == "'" and "'" not in raw[1:-1]:
        return Word(raw, raw[1:-1], lead=raw[1:-1])
    if len(raw) > 1 and raw[0] == raw[-1] == '"':
        plain = not any(character in raw[1:-1] for character in '"$`\\')
        return Word(raw, raw[1:-1], lead=raw[1:-1]) if plain else Word.unknown(raw, spread=False)
    return Word.unknown(raw)
