package redlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// The keys whose registers failed attempts have given a life are bounded: those beyond are not forgotten, but given one
// by every attempt.
func TestRememberedLivesAreBounded(t *testing.T) {
	l, err := New(Options{}, &deafNode{})
	if err != nil {
		t.Fatal(err)
	}
	due := func(i int) uint64 {
		name, _ := wire.NameKey("", fmt.Sprint("jobs/", i))
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.registerTTLDue(&acquireCall{name: name, ttl: time.Second, raised: 1})
	}
	const more = 100
	for i := range maxRegisterTTLs + more {
		if due(i) != 1 {
			t.Fatalf("the first failed attempt at key %d: its register is given no life", i)
		}
	}
	defer l.renew.Stop() // nobody is asked
	if got := len(l.registerTTLs); got != maxRegisterTTLs {
		t.Errorf("remembered after %d keys: got %d, want %d", maxRegisterTTLs+more, got, maxRegisterTTLs)
	}
	if due(0) != 0 || due(maxRegisterTTLs) != 1 {
		t.Errorf("the second attempt: got %d for a key that is remembered and %d for one that is not, want 0 and 1", due(0), due(maxRegisterTTLs))
	}
}

// So are the keys whose registers are ahead of our clock.
func TestRememberedLeadsAreBounded(t *testing.T) {
	l, err := New(Options{}, &deafNode{})
	if err != nil {
		t.Fatal(err)
	}
	start := instant{at: time.Now(), wall: 1000}
	for i := range maxRegistersAhead + 100 {
		name, _ := wire.NameKey("", fmt.Sprint("jobs/", i))
		l.noteRegisterAhead(name, start, 2000)
		if got := l.registerAhead(name); got != 2000 {
			t.Fatalf("key %d: got a lead of %d, want 2000", i, got)
		}
		if len(l.registersAhead) > maxRegistersAhead {
			t.Fatalf("remembered after %d keys: got %d, want at most %d", i+1, len(l.registersAhead), maxRegistersAhead)
		}
	}
}
