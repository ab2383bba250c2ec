# Make the outputs in this directory anew: sh produce.sh. The programs of README.md must be on PATH.
set -u
out=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
cd "$work" || exit 1
plain() { sed -e "s,$work,/home/dev,g" -e 's,/[^ "]*/lib/python3\.[0-9]*/,/usr/lib/python3/,g' -e 's,/tmp/cc[A-Za-z0-9]*\.o,/tmp/ccXXXXXX.o,g'; }
run() { name=$1; shift; "$@" 2>&1 | plain >"$out/$name"; echo "$name"; }
unset NO_COLOR
# --- C
mkdir c; cd c
cat > main.c <<'E'
#include <stdio.h>
#include "util.h"

static int unused_one(void) { return 1; }

int main(void) {
    int count = "three";
    char *text;
    printf("%d\n", text);
    missing_call(count)
    return 0;
}
E
cat > util.h <<'E'
#ifndef UTIL_H
#define UTIL_H
int add(int a, int b)
{ retrun a + b; }
#endif
E
cat > link.c <<'E'
extern int elsewhere(int);
int main(void) { return elsewhere(1); }
E
cat > "with space.cpp" <<'E'
#include <vector>
#include <string>
int main() {
    std::vector<int> v;
    v.push_back(std::string("x"));
    undeclared = 1;
}
E
run gcc.txt env LC_ALL=C gcc -Wall -Wextra -c main.c
run gcc-colour.txt env LC_ALL=C gcc -Wall -fdiagnostics-color=always -fdiagnostics-urls=always -c main.c
run gpp.txt env LC_ALL=C g++ -Wall -c "with space.cpp"
run gcc-link.txt env LC_ALL=C gcc link.c -o link
run gcc-link-g.txt env LC_ALL=C gcc -g link.c -o link
run gcc-missing.txt env LC_ALL=C gcc nofile.c
run clang.txt clang -Wall -Wextra -c main.c
run clang-colour.txt clang -Wall -fcolor-diagnostics -c main.c
run clang-msvc.txt clang -Wall -fdiagnostics-format=msvc -c main.c
printf 'all: main.o\n\tgcc -Wall -c main.c' >Makefile
run make.txt env LC_ALL=C make -k
printf 'all:\n  spaces\n' >Makefile
run make-separator.txt env LC_ALL=C make
cd ..
# --- Go
mkdir go; cd go
export GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOCACHE="$work/cache"
cat > go.mod <<'E'
module example.org/demo

go 1.19
E
cat > main.go <<'E'
package main

import (
	"fmt"
	"os"
)

func main() {
	count := 3
	var text string = 5
	fmt.Println(missing)
}
E
run go-build.txt go build ./...
cat > main.go <<'E'
package main

import "fmt"

func Double(n int) int { return n + n + 1 }

func main() {
	fmt.Printf("%d\n", "text")
	var list []int
	fmt.Println(list[5])
}
E
cat > main_test.go <<'E'
package main

import "testing"

func TestDouble(t *testing.T) {
	if got := Double(2); got != 4 {
		t.Errorf("Double(2) = %d, want 4", got)
	}
}

func TestPanic(t *testing.T) {
	var m map[string]int
	m["x"] = 1
}
E
run go-vet.txt go vet ./...
run go-test.txt go test -vet=off ./...
run go-panic.txt go run .
cd ..
# --- Rust
mkdir -p rust/src; cd rust
cat > src/main.rs <<'E'
fn add(a: i32, b: i32) -> i32 {
    a + b
}

fn main() {
    let unused = 1;
    let total: i32 = "five";
    println!("{}", add(1));
    let s = String::from("x");
    let t = s;
    println!("{}", s);
}
E
run rustc.txt rustc src/main.rs
run rustc-colour.txt rustc --color=always src/main.rs
run rustc-short.txt rustc --error-format=short src/main.rs
run rustc-json.txt rustc --error-format=json src/main.rs
cat > warn.rs <<'E'
fn main() {
    let unused = 1;
    let v: Vec<i32> = Vec::new();
    println!("{}", v[3]);
}
E
run rustc-warn.txt rustc warn.rs -o warn
run rust-panic.txt env RUST_BACKTRACE=0 ./warn
cat > Cargo.toml <<'E'
[package]
name = "demo"
version = "0.1.0"
edition = "2021"
E
run cargo.txt cargo check --offline
run cargo-json.txt cargo check --offline --message-format=json
cd ..
# --- TypeScript, ESLint
mkdir ts; cd ts
cat > app.ts <<'E'
interface User { name: string; age: number }
const user: User = { name: 1 };
function greet(u: User): string { return u.nmae; }
const wrong: { a: { b: string } } = { a: { b: 2 } };
greet("x", 2);
let x: number = greet(user);
E
cat > bad.js <<'E'
var unused = 1;
if (a == b) { console.log("x") }
function f() { return 1;; }
E
cat > broken.js <<'E'
function ( {
E
cat > .eslintrc.json <<'E'
{"root": true, "env": {"node": true}, "parserOptions": {"ecmaVersion": 2021}, "extends": "eslint:recommended", "rules": {"eqeqeq": "warn"}}
E
run tsc.txt tsc --noEmit --strict --pretty false app.ts
run tsc-pretty.txt tsc --noEmit --strict --pretty app.ts
run tsc-option.txt tsc --nosuch app.ts
run eslint-stylish.txt eslint bad.js broken.js
run eslint-unix.txt eslint -f unix bad.js broken.js
run eslint-json.txt eslint -f json bad.js broken.js
run eslint-colour.txt eslint --color bad.js broken.js
cd ..
# --- Python
mkdir py; cd py
cat > app.py <<'E'
import os
import sys
from typing import List


def add(a: int, b: int) -> int:
    return a + b


def broken(values: List[int]) -> str:
    l = 1
    return add(values[0], "two")


x: int = "text"
print(undefined_name)
E
cat > crash.py <<'E'
import json


def load(text):
    try:
        return json.loads(text)
    except ValueError as error:
        raise RuntimeError("the settings are no JSON") from error


load("{")
E
printf 'def f(:\n    pass\n' > syntax.py
cat > group.py <<'E'
def one():
    raise ValueError("first")

try:
    one()
except ValueError as a:
    try:
        raise KeyError("second")
    except KeyError as b:
        raise ExceptionGroup("both", [a, b])
E
cat > test_app.py <<'E'
import pytest


def add(a, b):
    return a - b


def test_add():
    print("tests/other.py:3: AssertionError in what was printed")
    assert add(1, 2) == 3


def test_deep():
    check(0)


def check(value):
    raise ValueError(f"bad value {value}")


class TestGroup:
    @pytest.mark.parametrize("n", [1, 2])
    def test_even(self, n):
        assert n % 2 == 0, f"{n} is odd"


@pytest.fixture
def broken():
    raise OSError("no device")


def test_setup(broken):
    pass
E
printf 'import nosuchmodule\n' > test_collect.py
run mypy.txt mypy --strict --no-incremental --cache-dir=/dev/null app.py
run mypy-columns.txt mypy --strict --show-column-numbers --no-incremental --cache-dir=/dev/null app.py
run mypy-pretty.txt mypy --strict --pretty --no-incremental --cache-dir=/dev/null app.py
run mypy-json.txt mypy --strict -O json --no-incremental --cache-dir=/dev/null app.py
run ruff.txt ruff check --isolated --no-cache --select E,F,I app.py syntax.py
run ruff-concise.txt ruff check --isolated --no-cache --select E,F,I --output-format concise app.py syntax.py
run ruff-json.txt ruff check --isolated --no-cache --select E,F,I --output-format json app.py
run flake8.txt flake8 --isolated app.py syntax.py
run traceback.txt python crash.py
run traceback-group.txt python group.py
run syntax.txt python syntax.py
P="python -m pytest -p no:cacheprovider -p no:xdist -p no:anyio -p no:hypothesispytest -p no:timeout --color=no"
run pytest.txt $P test_app.py test_collect.py --continue-on-collection-errors
run pytest-short.txt $P --tb=short test_app.py
run pytest-line.txt $P --tb=line test_app.py
run pytest-native.txt $P --tb=native test_app.py
run pytest-none.txt $P --tb=no test_app.py
run pytest-colour.txt python -m pytest -p no:cacheprovider -p no:xdist --color=yes test_app.py
cd ..
# --- Java
mkdir java; cd java
cat > Main.java <<'E'
import java.util.*;

public class Main {
    public static void main(String[] args) {
        int count = "three";
        List list = new ArrayList();
        list.add(missing);
        undefinedCall(count);
    }
}
E
run javac.txt javac -Xlint:all -d "$work/classes" Main.java
run javac-missing.txt javac -d "$work/classes" Nofile.java
cd ..
# --- Kotlin
mkdir kt; cd kt
cat > Main.kt <<'E'
fun twice(n: Int): Int = n * 2

fun main() {
    val unused = 1
    val text: Int = "three"
    println(twice(missing))
    println(twice("x"))
}
E
run kotlin.txt kotlinc Main.kt -d out.jar
cd ..
rm -rf "$work"
