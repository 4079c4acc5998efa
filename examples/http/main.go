// Http is a net/http handler that works under a lock. A request whose lock another
// request holds waits a little and is then answered 409, with a Retry-After from the
// ttl of the holder. If too few nodes reply, the answer is 503.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/examples/internal/setup"
)

// A server charges orders, each under its lock.
type server struct {
	locker *redlock.Locker
	charge func(ctx context.Context, order string, fence int64) error
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	order := r.PathValue("order")
	key := "orders/" + order
	err := s.locker.Run(r.Context(), key, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
		return s.charge(ctx, order, lock.Fence())
	}, redlock.WithWait(200*time.Millisecond))
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, redlock.ErrHeld):
		w.Header().Set("Retry-After", s.retryAfter(r.Context(), key))
		http.Error(w, "the order is being processed", http.StatusConflict)
	case errors.Is(err, redlock.ErrNoQuorum):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "try again", http.StatusServiceUnavailable)
	default: // ErrLost included: whether the order was charged is in the store, with its fence
		http.Error(w, "internal error", http.StatusInternalServerError)
	}
}

// retryAfter returns how many seconds the holder's lock lasts, unless it is renewed; at
// least one.
func (s *server) retryAfter(ctx context.Context, key string) string {
	status, err := s.locker.Inspect(ctx, key)
	if err != nil || status.Left <= 0 {
		return "1"
	}
	return strconv.Itoa(int((status.Left + time.Second - 1) / time.Second))
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{order}/charge", s)
	return mux
}

func main() {
	setup.Main("SELECT 1", func(ctx context.Context, env *setup.Env) error {
		begun := make(chan bool)
		s := &server{locker: env.Locker("shop"), charge: func(ctx context.Context, order string, fence int64) error {
			close(begun)
			time.Sleep(time.Second)
			return ctx.Err()
		}}
		web := httptest.NewServer(s.handler())
		defer web.Close()
		post := func(who string) {
			res, err := http.Post(web.URL+"/orders/7/charge", "", nil)
			if err != nil {
				fmt.Println(err)
				return
			}
			res.Body.Close()
			fmt.Println(who, "is answered", res.Status, "Retry-After:", res.Header.Get("Retry-After"))
		}
		done := make(chan bool)
		go func() { post("the first request"); close(done) }()
		<-begun
		post("the second request")
		<-done
		return nil
	})
}
