package held

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	_ "github.com/seed-ce352c9b/redlock/internal/rapidseed" // the same cases each time

	"pgregory.net/rapid"
)

func TestConstants(t *testing.T) {
	if registerGrace < time.Second {
		t.Errorf("a lock costs a command for its registers after %v; want to wait a second at least", registerGrace)
	}
	if 2*watchEvery > time.Second {
		t.Errorf("the wall clock is read every %v; want two reads in the second in which a sleeper learns of its loss", watchEvery)
	}
	if sweep := sweepEvery * watchEvery; sweep != 30*time.Second {
		t.Errorf("the list is swept every %v; want half a minute", sweep)
	}
}

// A lock is what the list knows of one.
type lock struct {
	Entry[*lock]
	added   time.Time
	grown   int
	gated   bool
	free    bool // from before it left the list
	freed   int
	checked int
	expired bool
}

// The list does what a slice would do: it has the locks in the order in which they were added,
// and calls each function for the locks for which it is due.
func TestListMatchesASlice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) { listMatchesASlice(rt) }) // in which the list's own timer never fires
	})
}

func listMatchesASlice(t *rapid.T) {
	at := clock.Instant{At: time.Now(), Wall: time.Now().UnixMicro()}
	pass := func(steady, wall time.Duration) {
		at.At, at.Wall = at.At.Add(steady), at.Wall+wall.Microseconds()
	}
	l := New(Config[*lock]{
		Now:     func() clock.Instant { return at },
		Entry:   func(k *lock) *Entry[*lock] { return &k.Entry },
		Freed:   func(k *lock) { k.freed++ },
		Grown:   func(k *lock) { k.grown++ },
		Expired: func(k *lock) bool { k.checked++; return k.expired },
	})
	var all, gone []*lock
	closed, checks := false, 0
	check := func(asleep bool) {
		l.check()
		if closed || len(all) == 0 {
			return
		}
		checks++
		if !asleep && checks%sweepEvery != 0 {
			return
		}
		for _, k := range slices.Clone(all) {
			if k.checked--; k.expired {
				all, gone = slices.DeleteFunc(all, func(o *lock) bool { return o == k }), append(gone, k)
			}
		}
	}
	for range rapid.IntRange(1, 100).Draw(t, "steps") {
		var k *lock
		if len(all) > 0 {
			k = rapid.SampledFrom(all).Draw(t, "lock")
		}
		switch do := rapid.SampledFrom([]string{"add", "add", "add", "remove", "gate", "free", "expire", "check", "check", "sweep", "sleep", "close"}).Draw(t, "do"); {
		case do == "add":
			k = &lock{added: at.At}
			if got := l.Add(k); got == closed {
				t.Fatalf("Add: got %v, closed %v", got, closed)
			}
			if !closed {
				all = append(all, k)
			}
		case do == "check":
			pass(watchEvery, watchEvery)
			check(false)
		case do == "sweep":
			for range sweepEvery {
				pass(watchEvery, watchEvery)
				check(false)
			}
		case do == "sleep":
			pass(watchEvery, time.Hour)
			for _, k := range all {
				k.added = k.added.Add(-time.Hour)
			}
			check(true)
		case do == "close" && rapid.IntRange(0, 9).Draw(t, "really") == 0:
			if got := l.Close(); !slices.Equal(got, all) {
				t.Fatalf("Close: got %d locks, want the %d in the list", len(got), len(all))
			}
			closed = true
		case k == nil:
		case do == "remove":
			l.Remove(k)
			l.Remove(k) // which changes nothing
			all, gone = slices.DeleteFunc(all, func(o *lock) bool { return o == k }), append(gone, k)
			if l.Gate(k) {
				t.Fatal("Gate: a lock that was removed is in the list")
			}
		case do == "free":
			l.Free(k)
			l.Free(k) // which changes nothing
			k.free = k.gated
		case do == "gate" && k.free: // a lock is gated once
		case do == "gate":
			if k.gated = true; !l.Gate(k) {
				t.Fatal("Gate: a lock in the list has left it")
			}
		case do == "expire":
			k.expired = true
		}
		if got := l.All(); !slices.Equal(got, all) || l.Len() != len(all) {
			t.Fatalf("the list has %d locks (Len %d), want %d in the order of acquisition", len(got), l.Len(), len(all))
		}
		for _, k := range slices.Concat(all, gone) {
			if in := slices.Contains(all, k); k.checked != 0 || k.freed > 1 || (k.freed == 1) != (k.gated && !in || k.free) {
				t.Fatalf("a lock was checked %d times too often and freed %d times; in the list %v, gated %v", k.checked, k.freed, in, k.gated)
			}
			if age := at.At.Sub(k.added); k.grown > 1 || k.grown == 1 && age < registerGrace {
				t.Fatalf("a lock added %v ago has grown %d times", age, k.grown)
			}
		}
		for _, k := range all {
			if age := at.At.Sub(k.added); !closed && k.grown == 0 && age >= registerGrace+watchEvery {
				t.Fatalf("a lock added %v ago has not grown", age)
			}
		}
	}
	for _, k := range slices.Clone(all) {
		l.Remove(k) // the timer stops with the last one
	}
	if !l.Unlocked() {
		t.Fatal("the mutex is locked")
	}
}

// The list checks its locks every half second, as long as it has any.
func TestTheListLooksEveryHalfSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		grown := make(chan *lock, 2)
		l := New(Config[*lock]{Now: clock.Real, Entry: func(k *lock) *Entry[*lock] { return &k.Entry }, Grown: func(k *lock) { grown <- k }})
		for range 2 { // the second time, the timer has been stopped before
			start := time.Now()
			k := new(lock)
			l.Add(k)
			if <-grown != k || time.Since(start) != registerGrace {
				t.Errorf("the lock grew after %v, want %v", time.Since(start), registerGrace)
			}
			l.Remove(k)
		}
	})
}
