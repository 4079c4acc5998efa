package main

import (
	"context"
	"errors"
	"testing"

	"github.com/seed-ce352c9b/redlock/examples/internal/setup"
)

// Two replicas bind every pod, one after the other, in two terms.
func TestEveryPodIsBoundInTwoTerms(t *testing.T) {
	env := setup.Test(t, schema)
	if err := schedule(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	var pending, terms int
	err := env.DB.QueryRow(`SELECT count(*) - count(machine), count(DISTINCT term) FROM pods`).Scan(&pending, &terms)
	if err != nil || pending != 0 || terms != 2 {
		t.Errorf("%d pods are pending, and %d terms have bound the others, %v; want none, and two", pending, terms, err)
	}
}

// A leader is paused in the middle of its term, and another takes over meanwhile. What the
// first one binds when it goes on is refused.
func TestAFormerLeaderBindsNothing(t *testing.T) {
	env := setup.Test(t, schema)
	lockers := env.Lockers("scheduler", 2)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	paused, goOn := make(chan struct{}), make(chan struct{})
	former := &replica{name: "former", l: lockers[0], db: env.DB, bound: func(context.Context, string) {
		close(paused)
		<-goOn
	}}
	late := make(chan error, 1)
	go func() {
		lock, err := former.l.Acquire(ctx, leaderKey, leaderTTL)
		if err == nil {
			err = former.lead(ctx, lock.Fence()) // as after a pause in which the process notices nothing
		}
		late <- err
	}()
	<-paused
	n := 0
	next := &replica{name: "next", l: lockers[1], db: env.DB}
	next.bound = func(context.Context, string) {
		if n++; n == 1 {
			close(goOn)
			if err := <-late; !errors.Is(err, errDeposed) {
				t.Errorf("the former leader's binding: got %v, want %v", err, errDeposed)
			}
		}
		if n == 5 {
			stop()
		}
	}
	if err := next.run(ctx); err != nil {
		t.Error(err)
	}
	var pending int
	if err := env.DB.QueryRow(`SELECT count(*) FROM pods WHERE machine IS NULL`).Scan(&pending); err != nil || pending != 0 {
		t.Errorf("%d pods are pending, %v, want none", pending, err)
	}
}
