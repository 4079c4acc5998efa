package redlocktest

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// drain is longer than anything that go-redis does after its clients were closed: a dial (DialTimeout, 2 s here, 5 s by
// default) and the pause of one second between two attempts of a pool that cannot dial. It is virtual time and costs nothing.
const drain = 10 * time.Second

// Bubble runs f in a [testing/synctest] bubble and then gives the background goroutines of closed clients ten virtual
// seconds to end. The clusters that f creates with its t are closed before that, inside the bubble.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(drain) }) // registered first, so it runs last
		f(t)
	})
}

// BubbleFunc runs f in a bubble. It is for property tests: call it once per case, inside the property. The clusters that f
// creates with this t are closed when f ends, in whatever way. If f panics, BubbleFunc panics with the same value on the
// caller's goroutine, because that is where rapid, whose failures are panics, recovers in order to shrink the case; if it
// were not recovered inside the bubble, the panic would end the process. Only one BubbleFunc may run per t at a time.
// Neither t.Skip nor t.Run works in f.
func BubbleFunc(t *testing.T, f func()) {
	t.Helper()
	var failure any
	returned := false
	synctest.Test(t, func(*testing.T) {
		openScope(t)
		defer func() {
			failure = recover()
			for _, c := range closeScope(t) {
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
	if !returned { // f called t.FailNow or t.SkipNow, which ended the bubble's goroutine and must end this one, too
		runtime.Goexit()
	}
}

// scopes holds the clusters that each running BubbleFunc must close. The key is the t that created them, because f has no
// other inside the bubble.
var scopes = struct {
	sync.Mutex
	m map[testing.TB][]*Cluster
}{m: map[testing.TB][]*Cluster{}}

func openScope(tb testing.TB) {
	scopes.Lock()
	defer scopes.Unlock()
	scopes.m[tb] = []*Cluster{}
}

// addToScope reports whether a BubbleFunc of tb will close c.
func addToScope(tb testing.TB, c *Cluster) bool {
	scopes.Lock()
	defer scopes.Unlock()
	list, ok := scopes.m[tb]
	if ok {
		scopes.m[tb] = append(list, c)
	}
	return ok
}

// closeScope ends the scope of tb and returns its clusters.
func closeScope(tb testing.TB) []*Cluster {
	scopes.Lock()
	defer scopes.Unlock()
	list := scopes.m[tb]
	delete(scopes.m, tb)
	return list
}
