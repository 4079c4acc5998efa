package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// The answers over real servers: done, held, and no quorum.
func TestAnswers(t *testing.T) {
	servers := realredis.Start(t, 3)
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	l, err := redlock.Open(redlock.Options{}, addrs...)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := &server{locker: l}
	post := func() *http.Response {
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest("POST", "/orders/7/charge", nil))
		return w.Result()
	}
	var held *http.Response
	var fence int64
	s.charge = func(_ context.Context, order string, f int64) error {
		fence = f
		s.charge = nil // nobody gets here while it is held
		held = post()
		return nil
	}
	if res := post(); res.StatusCode != http.StatusNoContent || fence == 0 {
		t.Errorf("a free order: got %s, fence %d, want 204", res.Status, fence)
	}
	if held.StatusCode != http.StatusConflict {
		t.Fatalf("an order that is held: got %s, want 409", held.Status)
	}
	if after, _ := strconv.Atoi(held.Header.Get("Retry-After")); after < 7 || after > 10 {
		t.Errorf("Retry-After: got %q, want the rest of 10 s", held.Header.Get("Retry-After"))
	}
	servers[0].Kill()
	servers[1].Kill()
	if res := post(); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "1" {
		t.Errorf("with one node of three: got %s, Retry-After %q, want 503 and 1", res.Status, res.Header.Get("Retry-After"))
	}
}
