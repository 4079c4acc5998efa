package pubsub

import (
	"testing"
	"time"
)

// A refusal that comes when nobody wants the channel any more is not remembered: nothing would forget it.
func TestARefusalOfAnIgnoredChannelIsNotKept(t *testing.T) {
	s := New(0, nil, nil)
	s.apart, s.aside = make(map[string]bool), make(map[string]time.Time)
	s.wanted["a"], s.wanted["c"] = false, false
	s.asked = [][]string{{"a", "b"}, {"b"}, {"c"}}
	for range 3 {
		if !s.setAside() {
			t.Fatal("a refusal had no SUBSCRIBE")
		}
	}
	if len(s.apart) != 2 || len(s.aside) != 1 || len(s.toSubscribe) != 1 || s.setAside() {
		t.Errorf("got apart %v, aside %v, to be asked for again %v", s.apart, s.aside, s.toSubscribe)
	}
}
