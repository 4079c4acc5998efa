package redlocktest

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// drain is longer than anything go-redis does after its clients were closed: a dial (DialTimeout, 2 s here, 5 s by default) and the
// pause of a second between two tries of a pool that cannot dial. It is virtual time and costs nothing.
const drain = 10 * time.Second

// Bubble runs f in a [testing/synctest] bubble and then gives background goroutines of closed clients ten virtual seconds to end.
// Clusters that f makes with its t are closed before that, inside the bubble.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(drain) }) // the first one in runs last
		f(t)
	})
}

// BubbleFunc runs f in a bubble, for property tests: one call per case, inside the property. Clusters that f makes with
// this t are closed when f ends, in whatever way. A panic of f comes out of BubbleFunc on the caller's goroutine, because that is
// where rapid, whose failures are panics, waits for it to shrink the case; uncaught inside the bubble it would end
// the process. One t can have one BubbleFunc at a time. In f neither t.Skip nor t.Run works.
func BubbleFunc(t *testing.T, f func()) {
	t.Helper()
	var failure any
	returned := false
	synctest.Test(t, func(*testing.T) {
		open(t)
		defer func() {
			failure = recover()
			for _, c := range leave(t) {
				c.Close()
			}
			time.Sleep(drain)
		}()
		f()
		returned = true
	})
	if failure != nil {
		panic(failure)
	}
	if !returned { // t.FailNow or t.SkipNow in f: it ended the bubble's goroutine and has to end this one
		runtime.Goexit()
	}
}

// scopes are the clusters that each running BubbleFunc has to close. They are known by the t that made them: inside the
// bubble f has no other.
var scopes = struct {
	sync.Mutex
	m map[testing.TB][]*Cluster
}{m: map[testing.TB][]*Cluster{}}

func open(tb testing.TB) {
	scopes.Lock()
	defer scopes.Unlock()
	scopes.m[tb] = []*Cluster{}
}

// enter reports whether a BubbleFunc of tb will close c.
func enter(tb testing.TB, c *Cluster) bool {
	scopes.Lock()
	defer scopes.Unlock()
	list, ok := scopes.m[tb]
	if ok {
		scopes.m[tb] = append(list, c)
	}
	return ok
}

func leave(tb testing.TB) []*Cluster {
	scopes.Lock()
	defer scopes.Unlock()
	list := scopes.m[tb]
	delete(scopes.m, tb)
	return list
}
