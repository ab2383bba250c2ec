"""What an import leads to, by the rules of each language."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_tools.dev.import_kinds import GoModule, Project, crate_names, go_module, resolve
from harness_tools.dev.languages.analysis import facts_of
from harness_tools.dev.languages.model import FileImports, Import
from harness_tools.dev.languages.table import language_named


def kinds(language: str, source: str, path: str, *files: str, **known: Any) -> list[tuple[str, str, str]]:
    """Each import of a file: its name, its kind, and the files of the tree that it leads to."""
    facts = facts_of(source.encode(), language_named(language), lambda: False)
    project = Project(frozenset([path, *files]), **known)
    found = [(item, resolve(item, path, facts, project)) for item in facts.imports]
    return [(item.module, where.kind, " ".join(where.files)) for item, where in found]


def test_python_knows_its_own_library_and_the_modules_of_the_tree() -> None:
    source = """
import os.path, yaml
import app.util as u
import lib2
from . import a, missing
from .b import c
from .. import top
from ... import beyond
from ....... import far
from app.pkg import inner, name
import string
import other
"""
    files = ("app/util.py", "src/lib2/x.py", "app/pkg/a.py", "app/pkg/b/c.py", "app/pkg/inner.py", "app/top.py")
    more = ("app/pkg/__init__.py", "app/pkg/string.py", "deep/down/other.py", "app/pkg/other/x.py")
    assert kinds("python", source, "app/pkg/main.py", *files, *more) == [
        ("os.path", "stdlib", ""),
        ("yaml", "external", ""),
        ("app.util", "local", "app/util.py"),
        ("lib2", "local", ""),
        (".", "relative", "app/pkg/a.py"),
        (".b", "relative", "app/pkg/b/c.py"),
        ("..", "relative", "app/top.py"),
        ("...", "relative", ""),
        (".......", "relative", ""),
        ("app.pkg", "local", "app/pkg/inner.py"),
        ("string", "stdlib", ""),
        ("other", "local", "deep/down/other.py"),
    ]


def test_python_finds_a_package_whose_root_is_not_that_of_the_tree() -> None:
    found = kinds("python", "from core.errors import E\n", "core/x/a.py", "core/core/errors.py")
    assert found == [("core.errors", "local", "core/core/errors.py")]


def test_the_nearest_module_of_go_decides_what_is_local() -> None:
    source = """package x
import (
  "fmt"
  "net/http"
  "shop.example/app/store"
  "shop.example/app"
  "shop.example/apple"
  "shop.example/app/tools/gen"
  "github.com/a/b"
  "./near"
  "C"
)"""
    modules = (
        GoModule("", "shop.example/app", "shop.example/app"),
        GoModule("tools", "tools.example", "tools.example"),
    )
    assert kinds("go", source, "cmd/main.go", "store/a.go", "root.go", modules=modules) == [
        ("fmt", "stdlib", ""),
        ("net/http", "stdlib", ""),
        ("shop.example/app/store", "local", "store"),
        ("shop.example/app", "local", "."),
        ("shop.example/apple", "external", ""),
        ("shop.example/app/tools/gen", "local", ""),
        ("github.com/a/b", "external", ""),
        ("./near", "relative", ""),
        ("C", "system", ""),
    ]
    assert kinds("go", source, "tools/x.go", modules=modules)[2] == ("shop.example/app/store", "external", "")
    above = (GoModule("", "shop.example/app/cmd", "shop.example/app"),)
    assert kinds("go", source, "main.go", "sub/x.go", modules=above)[2:4] == [
        ("shop.example/app/store", "local", ""),
        ("shop.example/app", "local", ""),
    ]


def test_scripts_know_what_comes_with_node_and_what_is_a_file() -> None:
    source = """
import a from './b';
import c from "../lib";
import d from './e.js';
import 'fs/promises';
import 'bun:test';
import '@scope/pkg/x';
import '@/deep/f';
import g from '#inner';
export * from './missing';
const h = require('./h.json'), i = require(name), j = import('k');
"""
    files = ("app/b.ts", "lib/index.tsx", "app/e.ts", "src/deep/f.vue", "src/deep/f.ts", "app/h.json")
    assert kinds("typescript", source, "app/main.ts", *files) == [
        ("./b", "relative", "app/b.ts"),
        ("../lib", "relative", "lib/index.tsx"),
        ("./e.js", "relative", "app/e.ts"),
        ("fs/promises", "stdlib", ""),
        ("bun:test", "stdlib", ""),
        ("@scope/pkg/x", "external", ""),
        ("@/deep/f", "local", "src/deep/f.ts"),
        ("#inner", "local", ""),
        ("./missing", "relative", ""),
        ("./h.json", "relative", "app/h.json"),
        ("k", "external", ""),
    ]


def test_rust_knows_its_crates() -> None:
    source = """
use std::io; use core::fmt; use crate::a::B; use self::c; use super::d;
use serde::{Serialize, de::{self, Error}}; use other_crate::x; use e::y;
mod e; mod f; mod g { use alloc::vec; }
fn main() { use anyhow::Result; }
"""
    found = kinds("rust", source, "src/main.rs", "src/e.rs", "src/f/mod.rs", crates=frozenset(["other_crate"]))
    assert found == [
        ("std::io", "stdlib", ""),
        ("core::fmt", "stdlib", ""),
        ("crate::a::B", "local", ""),
        ("self::c", "relative", ""),
        ("super::d", "relative", ""),
        ("serde::Serialize", "external", ""),
        ("serde::de", "external", ""),
        ("serde::de::Error", "external", ""),
        ("other_crate::x", "local", ""),
        ("e::y", "local", ""),
        ("e", "local", "src/e.rs"),
        ("f", "local", "src/f/mod.rs"),
        ("alloc::vec", "stdlib", ""),
        ("anyhow::Result", "external", ""),
    ]
    assert kinds("rust", "mod x;", "src/a/b.rs", "src/a/b/x.rs") == [("x", "local", "src/a/b/x.rs")]


def test_java_and_its_kin_know_the_packages_of_the_tree() -> None:
    known = {"packages": {"jvm": frozenset(["com.acme.bank", "com.acme.app"])}}
    source = """
import java.util.List; import com.acme.bank.Account; import com.acme.bank.Account.Kind; import com.acme.app.*;
import static com.acme.bank.Money.of; import com.acme.other.X; import org.junit.Test;
"""
    files = ("src/com/acme/bank/Account.java", "src/com/acme/bank/Money.kt")
    assert kinds("java", source, "src/com/acme/app/Main.java", *files, **known) == [
        ("java.util.List", "stdlib", ""),
        ("com.acme.bank.Account", "local", "src/com/acme/bank/Account.java"),
        ("com.acme.bank.Account.Kind", "local", "src/com/acme/bank/Account.java"),
        ("com.acme.app.*", "local", ""),
        ("com.acme.bank.Money.of", "local", "src/com/acme/bank/Money.kt"),
        ("com.acme.other.X", "external", ""),
        ("org.junit.Test", "external", ""),
    ]
    assert kinds("kotlin", "import com.acme.bank.open\nimport kotlinx.coroutines.launch\n", "a.kt", **known) == [
        ("com.acme.bank.open", "local", ""),
        ("kotlinx.coroutines.launch", "external", ""),
    ]
    assert kinds("scala", "import com.acme.bank.{Account, Money => M}, scala.util.Try\n", "a.scala", **known) == [
        ("com.acme.bank.Account", "local", ""),
        ("com.acme.bank.Money", "local", ""),
    ]


def test_includes_are_local_or_of_the_system() -> None:
    source = (
        '#include <stdio.h>\n#include "a.h"\n#include "util/b.h"\n#include "gone.h"\n#include <lib/c.h>\n#include X\n'
    )
    files = ("src/a.h", "a.h", "other/util/b.h", "include/lib/c.h")
    assert kinds("c", source, "src/main.c", *files) == [
        ("stdio.h", "system", ""),
        ("a.h", "local", "src/a.h"),
        ("util/b.h", "local", "other/util/b.h"),
        ("gone.h", "local", ""),
        ("lib/c.h", "local", "include/lib/c.h"),
        ("X", "external", ""),
    ]


def test_c_sharp_and_php_know_the_namespaces_of_the_tree() -> None:
    known = {"packages": {"csharp": frozenset(["Acme.Core.Data"]), "php": frozenset(["Acme\\Core"])}}
    source = "using System.IO; using Systematic; using Acme.Core; using Acme.Core.Data.Deep; using Xunit;\n"
    assert [kind for _, kind, _ in kinds("csharp", source, "a.cs", **known)] == [
        "stdlib",
        "external",
        "local",
        "local",
        "external",
    ]
    source = "<?php use Acme\\Core\\Money; use Acme\\Corex\\A; use Exception; require 'b.php';\n"
    source += "include __DIR__ . '/lib/c.php'; include $x; require \"$d/e.php\";"
    assert kinds("php", source, "a.php", "src/Money.php", "b.php", "x/lib/c.php", "e.php", **known) == [
        ("Acme\\Core\\Money", "local", "src/Money.php"),
        ("Acme\\Corex\\A", "external", ""),
        ("Exception", "stdlib", ""),
        ("b.php", "relative", "b.php"),
        ("__DIR__ . '/lib/c.php'", "relative", "x/lib/c.php"),
        ("$x", "relative", ""),
        ('"$d/e.php"', "relative", "e.php"),
    ]


def test_ruby_knows_its_library_and_its_load_path() -> None:
    source = "require 'json'\nrequire 'net/http'\nrequire 'a/b'\nrequire 'rails'\n"
    source += "require_relative '../c'\nload 'd.rb'\nx.require 'e'\n"
    assert kinds("ruby", source, "bin/x.rb", "lib/a/b.rb", "c.rb", "d.rb") == [
        ("json", "stdlib", ""),
        ("net/http", "stdlib", ""),
        ("a/b", "local", "lib/a/b.rb"),
        ("rails", "external", ""),
        ("../c", "relative", "c.rb"),
        ("d.rb", "relative", "d.rb"),
    ]


def test_shells_source_files() -> None:
    source = '. ./a.sh\nsource "$HERE/lib/b.sh"\n. "$(dirname "$0")"/c.sh\n. /etc/rc\n. ~/x\nsource $ALL\n'
    source += "if true; then . d.sh; fi\n"
    assert kinds("shell", source, "bin/x.sh", "bin/a.sh", "lib/b.sh", "bin/c.sh", "d.sh") == [
        ("./a.sh", "relative", "bin/a.sh"),
        ("$HERE/lib/b.sh", "local", "lib/b.sh"),
        ('$(dirname "$0")"/c.sh', "local", "bin/c.sh"),
        ("/etc/rc", "system", ""),
        ("~/x", "system", ""),
        ("$ALL", "local", ""),
        ("d.sh", "relative", "d.sh"),
    ]


def test_swift_lua_and_zig_have_rules_too() -> None:
    assert kinds("swift", "import UIKit\nimport Engine\nimport Alamofire\n", "a.swift", "Sources/Engine/b.swift") == [
        ("UIKit", "system", ""),
        ("Engine", "local", ""),
        ("Alamofire", "external", ""),
    ]
    source = 'local a = require "a.b"\nrequire("ffi")\nlocal c = require(x)\nrequire("lpeg")\ndofile("d.lua")\n'
    assert kinds("lua", source, "main.lua", "src/a/b/init.lua", "d.lua") == [
        ("a.b", "local", "src/a/b/init.lua"),
        ("ffi", "stdlib", ""),
        ("lpeg", "external", ""),
        ("d.lua", "relative", "d.lua"),
    ]
    source = 'const a = @import("std");\nconst b = @import("x/c.zig");\nconst d = @import("zap");\n'
    assert kinds("zig", source, "src/a.zig", "src/x/c.zig") == [
        ("std", "stdlib", ""),
        ("x/c.zig", "relative", "src/x/c.zig"),
        ("zap", "external", ""),
    ]


def test_of_files_with_the_same_name_the_nearest_is_meant() -> None:
    found = kinds("c", '#include "x/a.h"\n', "one/two/m.c", "three/x/a.h", "one/x/a.h")
    assert found == [("x/a.h", "local", "one/x/a.h")]


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("module a.example/b\n\ngo 1.22\n", "a.example/b"),
        ('// first\nmodule "a.example/b" // last\n', "a.example/b"),
        ("module\ta // b\n", "a"),
        ("module a.example/b/v2", "a.example/b/v2"),
        ("go 1.22\n", None),
        ("", None),
    ],
)
def test_a_module_of_go_says_its_path(text: str, root: str | None) -> None:
    found = go_module(text, "sub")
    assert (found.root if found else None) == root
    above = go_module(text, below="x/y")
    assert (above.path if above else None) == (f"{root}/x/y" if root else None)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('[package]\nname = "my-crate"\n', ("my_crate",)),
        ('[package]\nname = "a"\n[lib]\nname = "b"\n', ("a", "b")),
        ('[workspace]\nmembers = ["x"]\n', ()),
        ("package = 1", ()),
        ("[package]\nname = 3\n", ()),
        ("no toml [", ()),
        ("a = " + "[" * 100_000, ()),
    ],
)
def test_a_manifest_of_a_crate_says_its_names(text: str, names: tuple[str, ...]) -> None:
    assert crate_names(text) == names


@given(st.text(max_size=60), st.sampled_from(["", "relative", "system", "quoted", "path", "declared", "dynamic"]))
def test_any_import_leads_somewhere(module: str, form: str) -> None:
    project = Project(frozenset(["a/b.py", "a/c.ts", "x.h"]), (GoModule("", "m", "m"),))
    for language in ("python", "go", "typescript", "rust", "java", "c", "csharp", "ruby", "shell", "php", "lua", "zig"):
        item = Import(module, 1, form, ("x",))
        found = resolve(item, "a/b.py", FileImports(language, (item,)), project)
        assert all(file in project.files or file in project.directories or file == "." for file in found.files)
