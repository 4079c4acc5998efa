package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// One of three dies: the two others are a majority, and the lock must be kept.
func TestExtensionsFasterThanAFarNodeAnswersDoNotLoseTheLock(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		k := try(t, l, "k", 10*time.Second)
		held, stop := k.KeepAlive(t.Context())
		defer stop()
		c.Node(2).Delay(100*time.Millisecond, 100*time.Millisecond)
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
			k.Extend(t.Context())
			time.Sleep(5 * time.Millisecond)
		}
		c.Node(1).Stop()
		time.Sleep(30 * time.Second)
		if held.Err() != nil {
			t.Errorf("lost with a majority up: %v", context.Cause(held))
		}
	})
}

type proxyError string

func (e proxyError) Error() string { return string(e) }
func (proxyError) RedisError()     {}

// A proxy that answers for a server whose reply it lost.
func TestAnErrorThatNoServerSaysMayHideAnExecutedCommand(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		clients := c.Clients()
		on := false
		for _, cl := range clients[1:] {
			cl.AddHook(tap(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				err := next(ctx, cmds)
				if on && strings.EqualFold(cmds[0].Name(), "set") {
					for _, cmd := range cmds {
						cmd.SetErr(proxyError("ERR upstream failure"))
					}
					return proxyError("ERR upstream failure")
				}
				return err
			}))
		}
		l := lockerOn(t, redlock.Options{}, clients)
		warmUp(t, c, l)
		on = true
		_, err := l.TryAcquire(t.Context(), "k", time.Minute)
		t.Log(err)
		time.Sleep(10 * time.Second)
		for i := range 3 {
			if v, ok := c.Node(i).Get("k"); ok {
				t.Errorf("node %d: still %s; %v", i, v, heard(c.Node(i), "k"))
			}
		}
	})
}

func TestAPanicInObserveDoesNotStopTheRollback(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		boom := false
		l := warmLocker(t, c, redlock.Options{Observe: func(redlock.Round) {
			if boom {
				boom = false
				panic("boom")
			}
		}})
		c.Node(1).Set("k", "x", time.Minute)
		c.Node(2).Set("k", "x", time.Minute)
		func() {
			defer func() { t.Log("recovered:", recover()) }()
			boom = true
			l.TryAcquire(t.Context(), "k", time.Minute)
		}()
		time.Sleep(2 * time.Second)
		if v, ok := c.Node(0).Get("k"); ok {
			t.Errorf("a panic in Observe left %s behind", v)
		}
	})
}

// TryAcquire that gives up in the pause after a tie does not say that ctx ended it.
func TestAContextThatEndsInThePauseAfterATieIsTold(t *testing.T) {
	staged(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		l := warmLocker(t, c, redlock.Options{})
		c.Node(0).Set("k", "x", time.Minute)
		c.Node(1).Set("k", "y", time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Millisecond)
		defer cancel()
		_, err := l.TryAcquire(ctx, "k", time.Minute)
		if ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}
