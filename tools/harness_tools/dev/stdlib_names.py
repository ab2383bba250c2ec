"""The modules that come with each language, where the language itself does not tell this process."""

from __future__ import annotations

__all__ = ["C_SHARP", "JVM", "LUA", "NODE", "RUBY", "RUST", "SWIFT", "ZIG"]

_NODE = """
assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain events
fs http http2 https inspector module net os path perf_hooks process punycode querystring readline repl stream
string_decoder sys timers tls trace_events tty url util v8 vm wasi worker_threads zlib
"""
NODE = frozenset(_NODE.split())
RUST = frozenset(["std", "core", "alloc", "proc_macro", "test"])
JVM = frozenset(["java", "javax", "jdk", "sun", "kotlin", "scala"])
C_SHARP = ("System", "Microsoft.CSharp", "Microsoft.VisualBasic", "Microsoft.Win32")
_RUBY = """
English abbrev base64 benchmark bigdecimal bundler cgi coverage csv date delegate did_you_mean digest drb erb
error_highlight etc expect fcntl fiber fiddle fileutils find forwardable getoptlong io ipaddr irb json logger matrix
minitest monitor mutex_m net nkf objspace observer open-uri open3 openssl optparse ostruct pathname pp prettyprint
prime prism pstore psych pty racc rbconfig rdoc readline reline resolv rexml rinda ripper rss rubygems securerandom
set shellwords singleton socket stringio strscan syslog tempfile thread time timeout tmpdir tsort un uri weakref
webrick win32ole yaml zlib
"""
RUBY = frozenset(_RUBY.split())
_SWIFT = """
Accelerate AppKit ARKit AVFoundation AVKit CloudKit CoreBluetooth CoreData CoreFoundation CoreGraphics CoreImage
CoreLocation CoreML CoreMotion CoreText Combine CryptoKit Darwin Dispatch Foundation FoundationNetworking GameKit
GLKit Glibc HealthKit ImageIO IOKit Intents JavaScriptCore LocalAuthentication MapKit MediaPlayer MessageUI Metal
MetalKit Musl NaturalLanguage Network ObjectiveC Observation OSLog PackageDescription PassKit PDFKit Photos PhotosUI
QuartzCore QuickLook RegexBuilder SafariServices SceneKit Security Social SpriteKit StoreKit Swift SwiftData SwiftUI
Synchronization SystemConfiguration Testing UIKit UniformTypeIdentifiers UserNotifications Vision WatchKit WebKit
WidgetKit WinSDK XCTest os
"""
SWIFT = frozenset(_SWIFT.split())
LUA = frozenset(["bit", "bit32", "coroutine", "debug", "ffi", "io", "jit", "math", "os", "string", "table", "utf8"])
ZIG = frozenset(["std", "builtin", "root"])
