'use strict';
const { join } = require('path');
const util = require('./util');
const express = require("express");

const LIMIT = 5;

function start(port, options = {}) {
  const lazy = require('lazy-module');
}

class Queue extends Base {
  #items = [];
  size = 0;
  push(item) { this.#items.push(item); }
  static of(...items) { return new Queue(); }
  *[Symbol.iterator]() {}
}

exports.stop = function (reason) { return reason; };
module.exports.name = 'legacy';
function hidden() {}
module.exports = { start, Queue };
