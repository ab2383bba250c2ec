require 'json'
require "set"
require_relative 'lib/store'
require 'sidekiq'
load './tasks.rb'

LIMIT = 10

module Jobs
  class Queue < Base
    DEFAULT = 'main'
    attr_reader :name, :size

    def initialize(name, size: 1)
      @name = name
    end

    def self.open(name) = new(name)

    class << self
      def all; end
    end

    def push(job); end

    private

    def secret
    end

    public

    def pop(count = 1) # takes one
    end

    private def hidden; end
  end
end

def helper(a, *rest, &block)
end
