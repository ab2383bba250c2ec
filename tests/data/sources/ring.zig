const std = @import("std");
const util = @import("util.zig");
const zap = @import("zap");

pub const limit: usize = 10;
var hidden: u32 = 0;

pub const Ring = struct {
    items: []u8,
    size: usize = 0,

    pub fn init(allocator: std.mem.Allocator) !Ring {
        return .{ .items = &.{} };
    }
    fn secret(self: *Ring) void {}
};

pub const Mode = enum { read, write };

pub fn main() !void {}
