local json = require("cjson")
local store = require "shop.store"
dofile("setup.lua")

local M = {}
LIMIT = 10
local hidden = 1

function M.open(name, size)
end

function M:close()
end

local function helper(a) end

M.later = function(x, ...) end

return M
