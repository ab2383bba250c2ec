// Package server serves.
package server

import (
	"context"
	"fmt"
	log "github.com/acme/log"
	. "example.org/shop/internal/store"
)

import "C"

const Version = "1.0"

const (
	First = iota
	second
)

var (
	ErrGone, errHidden error
)

var count int = 3

// Server is one.
type Server struct {
	*Base
	Name, Host string `json:"name"`
	port       int
}

type Handler interface {
	Handle(ctx context.Context, id string) (int, error)
	fmt.Stringer
}

type ID = string
type Celsius float64
type pair[K comparable, V any] struct{ key K }

func New(name string, options ...Option) (*Server, error) {
	return nil, nil
}

func (s *Server) Run(ctx context.Context) error { return nil }
func (p pair[K, V]) Show() string               { return "" }
func (s Server) stop()                          {}
func Map[T, U any](in []T, f func(T) U) []U     { return nil }
