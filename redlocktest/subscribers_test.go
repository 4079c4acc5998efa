package redlocktest_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// heard subscribes to the channel "one" and calls f with a function that publishes there and returns the number of receivers.
func heard(t *testing.T, f func(cl *redlocktest.Cluster, sub *redis.PubSub, publish func(text string) int)) {
	redlocktest.Bubble(t, func(t *testing.T) {
		cl := redlocktest.New(t, 1)
		c := cl.Clients()[0]
		sub := c.Subscribe(bg, "one")
		if _, err := sub.Receive(bg); err != nil {
			t.Fatal(err)
		}
		f(cl, sub, func(text string) int {
			n, err := cl.Node(0).Do("PUBLISH", "one", text)
			if err != nil {
				t.Fatal(err)
			}
			return n.(int)
		})
		sub.Close()
	})
}

// hears fails the test unless these are the next messages of a subscription.
func hears(t *testing.T, what string, sub *redis.PubSub, texts ...string) {
	t.Helper()
	for _, text := range texts {
		m, err := sub.ReceiveMessage(within(time.Minute))
		if err != nil || m.Payload != text {
			t.Errorf("%s: got %v, %v, want %s", what, m, err, text)
		}
	}
}

func TestResetSubscribers(t *testing.T) {
	heard(t, func(cl *redlocktest.Cluster, sub *redis.PubSub, publish func(string) int) {
		other := cl.Clients()[0]
		other.Ping(bg)
		cl.Node(0).ResetSubscribers()
		time.Sleep(time.Millisecond)
		want(t, "receivers", publish("unheard"), 0)
		_, err := sub.Receive(within(time.Second))
		is(t, "the subscription", err, syscall.ECONNRESET)
		answers(t, "another connection", other)
	})
}

func TestMuteSubscribers(t *testing.T) {
	heard(t, func(cl *redlocktest.Cluster, sub *redis.PubSub, publish func(string) int) {
		cl.Node(0).MuteSubscribers()
		want(t, "receivers, though nothing gets there", publish("lost"), 1)
		sub.Ping(bg)
		_, err := sub.ReceiveTimeout(bg, time.Minute)
		timesOut(t, "Receive", err)
		later := cl.Clients()[0].Subscribe(bg, "one")
		later.Receive(bg)
		publish("heard")
		hears(t, "a later subscriber", later, "heard")
		later.Close()
	})
}

func TestDelaySubscribers(t *testing.T) {
	heard(t, func(cl *redlocktest.Cluster, sub *redis.PubSub, publish func(string) int) {
		n, began := cl.Node(0), time.Now()
		n.DelaySubscribers(3 * time.Second)
		publish("first")
		time.Sleep(time.Millisecond) // the reply has been sent
		n.DelaySubscribers(0)
		publish("second")
		for _, text := range []string{"first", "second"} {
			hears(t, "a slow subscriber", sub, text)
			between(t, "the "+text, time.Since(began), 3*time.Second, 3*time.Second+10*time.Millisecond)
		}
		lasts(t, "a PING of others", 0, func() error { return cl.Clients()[0].Ping(bg).Err() })
	})
}

func TestKill(t *testing.T) {
	heard(t, func(cl *redlocktest.Cluster, sub *redis.PubSub, publish func(string) int) {
		n, c := cl.Node(0), cl.Clients()[0]
		listens := c.Subscribe(bg, "one")
		listens.Receive(bg)
		c.Ping(bg)
		n.Delay(time.Second, 0)
		done := make(chan error)
		go func() { done <- c.Set(bg, "k", "sent", 0).Err() }()
		time.Sleep(10 * time.Millisecond)
		cl.Kill(c)
		if err := <-done; err == nil {
			t.Error("a killed process hears the answer")
		}
		want(t, "receivers before the end of its connections has arrived", publish("x"), 2)
		time.Sleep(2 * time.Second)
		want(t, "receivers after that", publish("x"), 1)
		if v, _ := n.Get("k"); v != "sent" {
			t.Errorf("got %q, want what it had sent", v)
		}
		if err := c.Ping(bg).Err(); err == nil {
			t.Error("a killed process connects anew")
		}
		answers(t, "another process", cl.Clients()[0])
		listens.Close()
	})
}
