"""Kinds of files by their names, for ``grep``'s ``type``. The same on every target, whatever searches there."""

from __future__ import annotations

from types import MappingProxyType

__all__ = ["FILE_TYPES"]

FILE_TYPES = MappingProxyType(
    {
        "c": ("*.c", "*.h"),
        "cmake": ("CMakeLists.txt", "*.cmake"),
        "config": ("*.conf", "*.cfg", "*.cnf", "*.ini", "*.config", "*.properties"),
        "cpp": ("*.cpp", "*.cc", "*.cxx", "*.hpp", "*.hh", "*.hxx", "*.h", "*.inl"),
        "cs": ("*.cs",),
        "css": ("*.css", "*.scss", "*.sass", "*.less"),
        "csv": ("*.csv", "*.tsv"),
        "docker": ("Dockerfile", "Dockerfile.*", "*.dockerfile", "Containerfile", "docker-compose*.y*ml"),
        "go": ("*.go",),
        "html": ("*.html", "*.htm", "*.xhtml"),
        "java": ("*.java",),
        "js": ("*.js", "*.jsx", "*.mjs", "*.cjs", "*.vue"),
        "json": ("*.json", "*.jsonl", "*.ndjson"),
        "kotlin": ("*.kt", "*.kts"),
        "log": ("*.log", "*.log.[0-9]*"),
        "lua": ("*.lua",),
        "make": ("Makefile", "makefile", "GNUmakefile", "*.mk", "*.mak"),
        "md": ("*.md", "*.markdown", "*.mdx"),
        "nix": ("*.nix",),
        "perl": ("*.pl", "*.pm", "*.t"),
        "php": ("*.php",),
        "proto": ("*.proto",),
        "py": ("*.py", "*.pyi"),
        "rst": ("*.rst",),
        "ruby": ("*.rb", "*.rake", "Gemfile", "Rakefile"),
        "rust": ("*.rs",),
        "sh": ("*.sh", "*.bash", "*.zsh", "*.ksh", ".bashrc", ".profile", ".zshrc"),
        "sql": ("*.sql",),
        "swift": ("*.swift",),
        "systemd": ("*.service", "*.socket", "*.timer", "*.target", "*.mount", "*.path", "*.slice"),
        "tf": ("*.tf", "*.tfvars", "*.hcl"),
        "toml": ("*.toml",),
        "ts": ("*.ts", "*.tsx", "*.mts", "*.cts"),
        "txt": ("*.txt",),
        "xml": ("*.xml", "*.xsd", "*.xsl", "*.svg"),
        "yaml": ("*.yaml", "*.yml"),
        "zig": ("*.zig",),
    }
)
"""Patterns of names by kind."""
