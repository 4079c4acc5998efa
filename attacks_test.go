package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
)

// The attacks of docs/design/invariants.md: that page is held to the code here, and what no other
// file plays is played.

// unnumbered are the files of this package whose comments do not have the numbers.
var unnumbered = []string{"options_test.go", "script_test.go", "command_test.go", "node_test.go"}

// A testFunc is a function of some *_test.go.
type testFunc struct {
	file    string
	comment string
	calls   map[string]bool // and all other names that it uses
}

// reaches reports whether a function uses one of the names, itself or by others.
func reaches(funcs map[string]testFunc, name string, seen map[string]bool, names ...string) bool {
	if seen[name] {
		return false
	}
	seen[name] = true
	for _, n := range names {
		if funcs[name].calls[n] {
			return true
		}
	}
	for c := range funcs[name].calls {
		if _, ok := funcs[c]; ok && reaches(funcs, c, seen, names...) {
			return true
		}
	}
	return false
}

// parsed reads the functions, and the words in quotes, of the Go files below a directory.
func parsed(t *testing.T, root string, which func(path string) bool) (funcs map[string]testFunc, quoted map[string]bool) {
	t.Helper()
	funcs, quoted = make(map[string]testFunc), make(map[string]bool)
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || !which(path) {
			return err
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			fn, isFunc := decl.(*ast.FuncDecl)
			calls := make(map[string]bool)
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Ident:
					calls[n.Name] = true
				case *ast.BasicLit:
					if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
						quoted[s] = true
					}
				}
				return true
			})
			if !isFunc {
				continue
			}
			// Of functions of one name, the one of this package.
			if _, known := funcs[fn.Name.Name]; !known || filepath.Dir(path) == root {
				funcs[fn.Name.Name] = testFunc{file: filepath.ToSlash(path), comment: fn.Doc.Text(), calls: calls}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return funcs, quoted
}

var (
	attackRow    = regexp.MustCompile(`^\| (\d+) \| (.+) \| (.+) \| (.+) \| (.*) \|$`)
	inCode       = regexp.MustCompile("`([^`]+)`")
	attackNumber = regexp.MustCompile(`(?m)^Attacks? (\d+(?:, \d+)*)\.$`)
)

// Every number of docs/design/invariants.md is there once, with tests of the levels that it gives;
// and every test that it names is there, and says so.
func TestAttacks(t *testing.T) {
	page, err := os.ReadFile("docs/design/invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	funcs, _ := parsed(t, ".", func(path string) bool { return strings.HasSuffix(path, "_test.go") })
	_, words := parsed(t, "internal", func(path string) bool {
		path = filepath.ToSlash(path)
		return strings.HasPrefix(path, "internal/sim/") || strings.HasPrefix(path, "internal/model/")
	})
	said := make(map[string][]int) // the numbers in tests' comments
	for name, f := range funcs {
		for _, m := range attackNumber.FindAllStringSubmatch(f.comment, -1) {
			for n := range strings.SplitSeq(m[1], ", ") {
				i, _ := strconv.Atoi(n)
				said[name] = append(said[name], i)
			}
		}
	}
	named := make(map[string][]int) // and those of the page
	const last = 98
	seen := make(map[int]bool)
	for line := range strings.Lines(string(page)) {
		row := attackRow.FindStringSubmatch(strings.TrimSpace(line))
		if row == nil {
			continue
		}
		n, _ := strconv.Atoi(row[1])
		if seen[n] || n < 1 || n > last {
			t.Errorf("attack %d is there twice, or is beyond %d", n, last)
		}
		seen[n] = true
		kinds := make(map[string]bool)
		for _, m := range inCode.FindAllStringSubmatch(row[5], -1) {
			name, _, _ := strings.Cut(m[1], "/")
			f, ok := funcs[name]
			switch {
			case m[1] == "internal/sim":
				kinds["S"] = true
			case m[1] == "internal/model":
				kinds["M"] = true
			case !strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "Fuzz"):
				if !words[m[1]] {
					t.Errorf("attack %d: neither internal/sim nor internal/model knows %q", n, m[1])
				}
			case !ok:
				t.Errorf("attack %d: there is no test %s", n, name)
			default:
				named[name] = append(named[name], n)
				if strings.HasPrefix(f.file, "real_") || strings.HasPrefix(f.file, "bench/") {
					kinds["R"] = true
					continue
				}
				kinds["U"] = true
				kinds["D"] = kinds["D"] || reaches(funcs, name, make(map[string]bool), "redlocktest")
				kinds["rapid"] = kinds["rapid"] || reaches(funcs, name, make(map[string]bool), "rapid")
				inRoot := !strings.Contains(f.file, "/") || strings.HasPrefix(f.file, "redlocktest/") || strings.HasPrefix(f.file, "cmd/")
				if inRoot && !slices.Contains(unnumbered, f.file) && !slices.Contains(said[name], n) {
					t.Errorf("%s: the comment of %s does not say attack %d", f.file, name, n)
				}
			}
		}
		for level := range strings.SplitSeq(row[4], ", ") {
			if !slices.Contains([]string{"U", "D", "S", "M", "R", "rapid"}, level) {
				t.Errorf("attack %d: there is no level %q", n, level)
			}
			if !kinds[level] {
				t.Errorf("attack %d: it names no test of level %s", n, level)
			}
		}
	}
	for n := 1; n <= last; n++ {
		if !seen[n] {
			t.Errorf("attack %d is not there", n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		for _, n := range said[name] {
			if !slices.Contains(named[name], n) {
				t.Errorf("%s says attack %d, and docs/design/invariants.md does not name it there", name, n)
			}
		}
	}
}

// The process stands still between its last look at the clock and the return of the
// call: nobody can look later than that, and so what is returned says itself that it
// is over.
//
// Attack 2.
func TestALockThatIsReturnedTooLateIsNotValid(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		const ttl, pause = 10 * time.Second, 11 * time.Second
		var observed, stood atomic.Bool
		var readings atomic.Int32 // of the clock, behind Observe: the first is the last look
		l, err := redlock.NewSeamed(redlock.Options{Observe: func(r redlock.Round) {
			if r.Op == redlock.OpAcquire {
				observed.Store(true)
			}
		}}, func() time.Time {
			now := time.Now()
			if observed.Load() && !stood.Load() && readings.Add(1) > 1 {
				now = now.Add(pause)
			}
			return now
		}, nil, 0, s.c.Nodes()...)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		began := time.Now()
		k := s.take(l, ttl)
		if readings.Load() < 2 {
			t.Fatal("nobody has read the clock behind the last look: the test tests nothing")
		}
		time.Sleep(pause)
		stood.Store(true)
		if got, want := k.Until(), began.Add(validFor(ttl, 1)); !got.Equal(want) || k.Valid() {
			t.Errorf("Until: got %v after the call, valid %v; want %v and false", got.Sub(began), k.Valid(), want.Sub(began))
		}
		held, stop := k.KeepAlive(s.ctx)
		defer stop()
		s.is("the cause of a KeepAlive context", context.Cause(held), redlock.ErrLost)
		other := s.take(s.locker(redlock.Options{}), time.Minute)
		s.is("Extend", k.Extend(s.ctx), redlock.ErrLost)
		s.is("Release", k.Release(s.ctx), redlock.ErrLost)
		time.Sleep(2 * time.Second)
		s.carry("the next holder's", other.Value(), s.all()...)
	})
}

// The longest ttl is longer than the day that a register outlives its lock by. It is
// counted from the last word on the lock all the same, so that whoever is next, and
// slow by hours, has the greater token.
//
// Attack 10.
func TestTokensGrowBehindALockOfTheLongestTTL(t *testing.T) {
	const longest = 24 * 24 * time.Hour
	for name, end := range map[string]func(s *stage, k *redlock.Lock){
		"left to expire": func(s *stage, k *redlock.Lock) { k.LeaveToExpire(); time.Sleep(longest) },
		"released": func(s *stage, k *redlock.Lock) {
			s.is("Release", k.Release(s.ctx), nil)
			time.Sleep(longest - 12*time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, 3, func(s *stage) {
				fast := s.lockerWith(redlock.Options{}, &hands{wall: 30 * 24 * time.Hour}, s.c.Nodes())
				k := s.take(fast, longest)
				if got := s.node(0).TTL(job); got > longest || got < longest-time.Minute {
					t.Errorf("the key lives for %v, want %v", got, longest)
				}
				end(s, k)
				time.Sleep(time.Millisecond)
				next := s.take(s.locker(redlock.Options{}), longest)
				if next.Fence() <= k.Fence() {
					t.Errorf("token: got %d after %d", next.Fence(), k.Fence())
				}
				next.Release(s.ctx)
			})
		})
	}
}

// Something on the way delivers an acquire once more when its lock is long over: the
// ghost keeps others out for its ttl, and gives nobody anything.
//
// Attacks 26, 27.
func TestASecondDeliveryAfterTheLockIsOverIsAGhost(t *testing.T) {
	const ttl = 2 * time.Second
	onStage(t, 3, func(s *stage) {
		a := s.locker(redlock.Options{})
		b := s.lockerWith(redlock.Options{}, &hands{wall: time.Hour}, s.c.Nodes())
		c := s.lockerWith(redlock.Options{}, &hands{wall: -time.Hour}, s.c.Nodes()) // it lives by the registers
		old := s.take(a, ttl)
		time.Sleep(oneTrip)
		again := func() {
			for i := range 3 {
				for _, cmd := range s.told(i, "acquire", "zadd") {
					if cmd.Client == 1 {
						s.do(i, cmd.Args...)
					}
				}
			}
		}
		again() // also while it is held
		s.carry("delivered twice", old.Value(), s.all()...)
		time.Sleep(ttl)
		between := s.take(b, time.Minute)
		time.Sleep(oneTrip)
		again()
		s.carry("delivered again in another's time", between.Value(), s.all()...)
		if !between.Valid() {
			t.Error("the other's lock is not valid any more")
		}
		s.is("Release", between.Release(s.ctx), nil)
		time.Sleep(oneTrip)
		again()
		s.carry("the ghost", old.Value(), s.all()...)
		if old.Valid() {
			t.Error("the old lock is valid again")
		}
		s.is("the old Extend", old.Extend(s.ctx), redlock.ErrLost)
		s.is("the old Release", old.Release(s.ctx), redlock.ErrLost)
		time.Sleep(ttl)
		k := s.take(c, time.Minute)
		if k.Fence() <= between.Fence() || between.Fence() <= old.Fence() {
			t.Errorf("tokens: got %d, %d, %d; want them to grow", old.Fence(), between.Fence(), k.Fence())
		}
	})
}

// A warped connection brings what its peer sent once as something else.
type warped struct {
	net.Conn
	warp *warp
}

// A warp is armed for the next bytes that arrive on any connection of a node.
type warp struct {
	mu    sync.Mutex
	next  func(b []byte) (out []byte, cut bool) // nil: not armed
	ended map[*warped]bool
}

func (w *warped) Read(b []byte) (int, error) {
	w.warp.mu.Lock()
	over := w.warp.ended[w]
	w.warp.mu.Unlock()
	if over {
		w.Conn.Close()
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}
	}
	n, err := w.Conn.Read(b)
	if err != nil {
		return n, err
	}
	w.warp.mu.Lock()
	defer w.warp.mu.Unlock()
	if f := w.warp.next; f != nil {
		w.warp.next = nil
		out, cut := f(b[:n])
		w.warp.ended[w] = cut
		n = copy(b, out)
	}
	return n, nil
}

// warpedNode is a client of the i-th node whose answers can be warped.
func (s *stage) warpedNode(i int) (redlock.Node, *warp) {
	w := &warp{ended: make(map[*warped]bool)}
	opt := *s.c.Clients()[i].Options()
	opt.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := s.node(i).Dial(ctx)
		if err != nil {
			return nil, err
		}
		return &warped{conn, w}, nil
	}
	c := redis.NewClient(&opt)
	s.Cleanup(func() { c.Close() })
	return c, w
}

// What comes back is cut off, or is no answer at all: it says nothing of the lock, is
// never taken for the answer to something else, and costs that node's vote alone.
//
// Attack 31.
func TestABrokenAnswerIsOneNodesErrorAndNoOthersAnswer(t *testing.T) {
	text := func(out string) func([]byte) ([]byte, bool) {
		return func([]byte) ([]byte, bool) { return []byte(out), false }
	}
	for name, f := range map[string]func(b []byte) ([]byte, bool){
		"reset in the middle":  func(b []byte) ([]byte, bool) { return b[:len(b)/2], true },
		"reset at the start":   func(b []byte) ([]byte, bool) { return b[:1], true },
		"half, and then none":  func(b []byte) ([]byte, bool) { return b[:len(b)/2], false },
		"garbage":              text("\x00\xff what is this\r\n"),
		"another protocol":     text("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
		"a number":             text(":7\r\n:7\r\n"),
		"a list":               text("*2\r\n:1\r\n:1\r\n:1\r\n"),
		"a length that is not": text("$99999999\r\nshort\r\n"),
		"an error, then yes":   text("-ERR nobody has heard of it\r\n:1\r\n"),
		"one answer too many":  func(b []byte) ([]byte, bool) { return append([]byte("+OK\r\n"), b...), false },
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, 3, func(s *stage) {
				nodes := s.c.Nodes()
				var w *warp
				nodes[2], w = s.warpedNode(2)
				l := s.lockerWith(redlock.Options{}, nil, nodes)
				time.Sleep(oneTrip) // all answers have come
				s.strangers(500*time.Millisecond, 1)
				w.mu.Lock()
				w.next = f
				w.mu.Unlock()
				k, err := l.TryAcquire(s.ctx, job, 5*time.Second)
				if k != nil {
					t.Fatalf("acquired by one of three and an answer that is none")
				}
				var q *redlock.QuorumError
				if !errors.As(err, &q) {
					t.Fatalf("TryAcquire: got %v, want a QuorumError", err)
				}
				if v := q.Round.Votes[2]; v.Answer == redlock.Yes || name != "one answer too many" && (v.Answer != redlock.Unknown || v.Err == nil) {
					t.Errorf("vote of a node whose answer was %s: got %v, %v; want unknown and why", name, v.Answer, v.Err)
				}
				time.Sleep(3 * time.Second)
				for n := range 30 { // if what is left of it were read later, these would tell
					key := fmt.Sprint("after/", n)
					k, err := l.TryAcquire(s.ctx, key, time.Minute)
					if err != nil {
						t.Fatalf("lock %d afterwards: %v", n, err)
					}
					if _, ok := within(20*time.Millisecond, func() bool { v, _ := s.node(2).Get(key); return v == k.Value() }); !ok {
						t.Errorf("lock %d afterwards: the node has not %q", n, k.Value())
					}
					if st, err := l.Inspect(s.ctx, key); err != nil || st.Nodes[2].Value != k.Value() || st.Nodes[2].Err != nil {
						t.Errorf("lock %d afterwards: Inspect got %v, %+v", n, err, st.Nodes)
					}
					s.is("Extend", k.Extend(s.ctx), nil)
					s.is("Release", k.Release(s.ctx), nil)
				}
				s.clean(l)
			})
		})
	}
}

// unresolved is a node whose name does not resolve.
func (s *stage) unresolved(i int) redlock.Node {
	opt := *s.c.Clients()[i].Options()
	opt.Dialer = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}}
	}
	c := redis.NewClient(&opt)
	s.Cleanup(func() { c.Close() })
	return c
}

// Attacks 33, 96.
func TestNamesThatDoNotResolveAreToldAndDoNotMatterInAMinority(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		nodes := s.c.Nodes()
		nodes[0], nodes[1] = s.unresolved(0), s.unresolved(1)
		l := s.cold(redlock.Options{}, nil, nodes)
		at := time.Now()
		_, err := l.TryAcquire(s.ctx, job, 10*time.Second)
		s.is("TryAcquire", err, redlock.ErrNoQuorum)
		s.says(err, "node-a:6379", "node-b:6379", "no such host")
		if d := time.Since(at); d > 5*oneTrip {
			t.Errorf("it took %v, want no time", d)
		}
		time.Sleep(time.Second)
		s.carry("nobody got that", "", s.all()...)
		nodes[1] = s.c.Nodes()[1]
		l = s.cold(redlock.Options{}, nil, nodes)
		at = time.Now()
		s.is("Release", s.take(l, 10*time.Second).Release(s.ctx), nil)
		if d := time.Since(at); d > 10*oneTrip { // with dials
			t.Errorf("with one of three: it took %v, want no time", d)
		}
	})
}

// Clients that were given other lists of nodes notice nothing. Lists that differ by one
// node, as they do while a node is added or taken away, still exclude each other: their
// majorities share a node. Lists that differ by more need not, and docs/operations.md
// asks for the same everywhere.
//
// Attacks 54, 55.
func TestListsThatDifferByOneNodeExcludeEachOther(t *testing.T) {
	for n := 1; n <= 6; n++ { // the shorter list's length
		for without := range n + 1 {
			onStage(t, n+1, func(s *stage) {
				long := s.locker(redlock.Options{})
				all := s.c.Nodes()
				short := s.lockerWith(redlock.Options{}, nil, slices.Concat(all[:without], all[without+1:]))
				members := slices.DeleteFunc(s.all(), func(i int) bool { return i == without })
				try := func(what string, first, second *redlock.Locker, bare []int) {
					t.Helper()
					for i := range n + 1 { // it has a bare majority of its list
						if !slices.Contains(bare, i) {
							s.strangers(20*time.Millisecond, i)
						}
					}
					k := s.take(first, time.Minute)
					time.Sleep(30 * time.Millisecond)
					s.carry(what, k.Value(), bare...)
					if other, err := second.TryAcquire(s.ctx, job, time.Minute); err == nil {
						t.Errorf("%d nodes, one list without %d, %s: two hold it, with %d and %d", n+1, without, what, k.Fence(), other.Fence())
					}
					time.Sleep(time.Second)
					s.is("Release", k.Release(s.ctx), nil)
					time.Sleep(time.Second)
					next, err := second.TryAcquire(s.ctx, job, time.Minute)
					if err != nil || next.Fence() <= k.Fence() {
						t.Fatalf("%s, released: got %v, %v; want it free, and a greater token", what, next, err)
					}
					s.is("Release", next.Release(s.ctx), nil)
					time.Sleep(time.Second)
				}
				try("held by the short list", short, long, members[:n/2+1])
				try("held by the long list", long, short, s.all()[:(n+1)/2+1])
			})
		}
	}
}

// pick returns the nodes with these indices, as a new client process.
func (s *stage) pick(list []int) []redlock.Node {
	all := s.c.Nodes()
	var nodes []redlock.Node
	for _, i := range list {
		nodes = append(nodes, all[i])
	}
	return nodes
}

// takeOn has a client acquire the lock on these nodes only: on all others somebody else is in
// the way for a moment.
func (s *stage) takeOn(l *redlock.Locker, ttl time.Duration, on ...int) *redlock.Lock {
	s.Helper()
	s.strangers(20*time.Millisecond, slices.DeleteFunc(s.all(), func(i int) bool { return slices.Contains(on, i) })...)
	k := s.take(l, ttl)
	time.Sleep(30 * time.Millisecond)
	s.carry("the lock", k.Value(), on...)
	return k
}

// bareMajorities are the majorities of a list that could do without none of their nodes.
func bareMajorities(list []int) (all [][]int) {
	for set := range 1 << len(list) {
		var m []int
		for i, node := range list {
			if set&(1<<i) != 0 {
				m = append(m, node)
			}
		}
		if len(m) == len(list)/2+1 {
			all = append(all, m)
		}
	}
	return all
}

// A rolling deployment that replaces one node by another: {b,c} is a majority of {a,b,c}, {a,d}
// is one of {a,b,d}, and they share no node. docs/operations.md warns of it.
//
// Attack 55.
func TestANodeReplacedInOneStepGivesTwoHolders(t *testing.T) {
	onStage(t, 4, func(s *stage) {
		before, after := s.lockerWith(redlock.Options{}, nil, s.pick([]int{0, 1, 2})), s.lockerWith(redlock.Options{}, nil, s.pick([]int{0, 1, 3}))
		k := s.takeOn(before, time.Minute, 1, 2)
		other := s.take(after, time.Minute)
		s.carry("the other", other.Value(), 0, 3)
		if !k.Valid() || !other.Valid() {
			t.Errorf("valid: %v and %v, want both: the warning of docs/operations.md is in vain", k.Valid(), other.Valid())
		}
	})
}

// The same in two steps, with every client moved before the next begins: first the new node is
// added, then the old one is taken away. In each step any majority of one list shares a node
// with any of the other. So no two hold the lock, and tokens grow whatever clocks say.
//
// Attack 55.
func TestANodeReplacedInTwoStepsKeepsOneHolder(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		before, both := make([]int, n), make([]int, n+1)
		for i := range both {
			both[i] = i
		}
		copy(before, both)
		after := append(slices.Clone(before[:n-1]), n) // without the last of those before
		for _, step := range [][2][]int{{before, both}, {both, after}} {
			onStage(t, n+1, func(s *stage) {
				var late hands
				late.setWall(-time.Hour)
				old, next := s.lockerWith(redlock.Options{}, nil, s.pick(step[0])), s.lockerWith(redlock.Options{}, &late, s.pick(step[1]))
				exclude := func(l, other *redlock.Locker, list []int) {
					for _, m := range bareMajorities(list) {
						k := s.takeOn(l, time.Minute, m...)
						if got, err := other.TryAcquire(s.ctx, job, time.Minute); err == nil {
							t.Errorf("%v to %v, held on %v: two hold it, with %d and %d", step[0], step[1], m, k.Fence(), got.Fence())
						}
						time.Sleep(time.Second)
						s.is("Release", k.Release(s.ctx), nil)
						time.Sleep(time.Second)
						then, err := other.TryAcquire(s.ctx, job, time.Minute)
						if err != nil || then.Fence() <= k.Fence() {
							t.Fatalf("%v to %v, released on %v: got %v, %v; want it free, and a token above %d", step[0], step[1], m, then, err, k.Fence())
						}
						s.is("Release", then.Release(s.ctx), nil)
						time.Sleep(time.Second)
					}
				}
				exclude(old, next, step[0])
				exclude(next, old, step[1])
			})
		}
	}
}

// Lists whose majorities need share no node are safe one after the other, with no client at work
// for the longest ttl between them: the second step of a replacement for a key that
// nobody has locked since the first, and the restart of everything with any other nodes. Tokens
// then stand on the clients' clocks: these must differ by less than that time.
//
// Attacks 55, 69.
func TestBetweenListsThatShareNothingTheLongestTTLHasToPass(t *testing.T) {
	const ttl = 10 * time.Second
	for _, lists := range []struct {
		name          string
		before, after []int
		down          [2][]int // out of reach for the clients before, and for those after
	}{
		{"a node replaced", []int{0, 1, 2}, []int{0, 1, 3}, [2][]int{{0}, {1}}},
		{"other nodes", []int{0, 1, 2}, []int{3, 4, 5}, [2][]int{}},
	} {
		for _, tt := range []struct {
			wait, late time.Duration // since the grant; the later clients' clocks against the earlier ones'
			both       bool
			grows      bool
		}{
			{ttl / 2, 0, true, true},
			{ttl, 0, false, true},
			{ttl, ttl - time.Second, false, true},
			{ttl, ttl + time.Second, false, false},
		} {
			t.Run(fmt.Sprintf("%s, after %v, clocks %v apart", lists.name, tt.wait, tt.late), func(t *testing.T) {
				onStage(t, 6, func(s *stage) {
					var late hands
					late.setWall(-tt.late)
					reach := func(list []int, yes bool) {
						for _, i := range list {
							s.node(i).Refuse(!yes)
						}
					}
					reach(lists.down[0], false)
					old := s.cold(redlock.Options{}, nil, s.pick(lists.before))
					k := s.take(old, ttl)
					granted := time.Now()
					time.Sleep(time.Second)
					k.LeaveToExpire() // nothing tells it from the lock of one that was killed
					s.is("Close", old.Close(), nil)
					reach(lists.down[0], true)
					reach(lists.down[1], false)
					time.Sleep(tt.wait - time.Since(granted))
					then := s.take(s.cold(redlock.Options{}, &late, s.pick(lists.after)), ttl)
					if both := time.Now().Before(k.Until()); both != tt.both {
						t.Errorf("both within their Until: got %v, want %v", both, tt.both)
					}
					if grows := then.Fence() > k.Fence(); grows != tt.grows {
						t.Errorf("tokens %d and %d: grow %v, want %v", k.Fence(), then.Fence(), grows, tt.grows)
					}
				})
			})
		}
	}
}

// A node is replaced by an empty machine at its address, while a holder has it in a bare
// majority. It grants nothing too early under a RestartGuard, if its server was started after the
// old one had gone; or without a guard, if nothing answered there for the longest ttl.
//
// Attacks 49, 55.
func TestAnEmptyMachineAtTheSameAddress(t *testing.T) {
	const ttl = 10 * time.Second
	for _, tt := range []struct {
		name    string
		guard   time.Duration
		started bool          // its server was started at the switch
		away    time.Duration // nothing answers at the address for so long
		both    bool
	}{
		{"with a guard", ttl, true, 0, false},
		{"with a guard, and a server that has been up for long", ttl, false, 0, true},
		{"without a guard", 0, true, 0, true},
		{"without a guard, after the longest ttl", 0, true, ttl, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onStage(t, 4, func(s *stage) {
				var at atomic.Int32 // which machine has the address of the third node
				at.Store(2)
				client := func() *redlock.Locker {
					i := -1
					clients := s.c.ClientsWith(func(o *redis.Options) {
						if i++; i == 2 {
							o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.node(int(at.Load())).Dial(ctx) }
						}
					})
					return s.cold(redlock.Options{RestartGuard: tt.guard}, nil, asLockerTakes(clients[:3]))
				}
				time.Sleep(time.Hour) // all servers have been up for longer than any guard
				holder, other := client(), client()
				for _, l := range []*redlock.Locker{holder, other} {
					s.is("Release", s.take(l, ttl).Release(s.ctx), nil)
					time.Sleep(time.Second)
				}
				s.strangers(20*time.Millisecond, 0)
				k := s.take(holder, ttl)
				s.carry("the lock", k.Value(), 1, 2)
				s.node(2).Stop()
				if tt.started {
					s.node(3).Restart(false)
				}
				time.Sleep(tt.away)
				at.Store(3)
				got := false
				for time.Now().Before(k.Until()) && !got {
					next, err := other.TryAcquire(s.ctx, job, ttl)
					if got = err == nil; got && tt.away == 0 {
						s.carry("the other", next.Value(), 0, 3)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if got != tt.both {
					t.Errorf("two holders at once: got %v, want %v", got, tt.both)
				}
				time.Sleep(time.Minute) // and then it is a node like the others
				s.node(0).Stop()
				s.take(s.cold(redlock.Options{RestartGuard: tt.guard}, nil, s.pick([]int{0, 1, 3})), ttl)
			})
		})
	}
}

// What says yes after the verdict stays, and is a reserve for what the others forget.
//
// Attack 56.
func TestGrantsThatComeAfterTheVerdictAreAReserve(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		a, b := s.locker(redlock.Options{}), s.locker(redlock.Options{})
		s.slow(80*time.Millisecond, 3, 4)
		var k *redlock.Lock
		s.lasts("TryAcquire", 0, func() { k = s.take(a, 10*time.Second) })
		s.carry("at the verdict", k.Value(), 0, 1, 2)
		time.Sleep(100 * time.Millisecond)
		s.carry("afterwards", k.Value(), s.all()...)
		s.slow(0, 3, 4)
		s.node(0).FlushAll()
		s.node(2).FlushAll()
		_, err := b.TryAcquire(s.ctx, job, time.Minute)
		s.is("TryAcquire of another, with two of the first three empty", err, redlock.ErrHeld)
		time.Sleep(time.Second)
		s.is("Extend", k.Extend(s.ctx), nil)
		time.Sleep(oneTrip)
		s.carry("healed", k.Value(), s.all()...)
		s.is("Release", k.Release(s.ctx), nil)
		s.clean(a, b)
	})
}

// Where every register is lost tokens are what the clients' clocks make them: in order
// where these differ by less than the time since the last grant, to the microsecond.
//
// Attack 69.
func TestTokensAfterALossOfAllRegistersAreInOrderWithinTheClocks(t *testing.T) {
	const ttl = time.Second
	for _, late := range []time.Duration{time.Microsecond, 0, -time.Microsecond} {
		onStage(t, 3, func(s *stage) {
			var ha, hb hands
			a, b := s.lockerWith(redlock.Options{}, &ha, s.c.Nodes()), s.lockerWith(redlock.Options{}, &hb, s.c.Nodes())
			ha.stop() // so that both stand at whole microseconds
			hb.stop()
			ha.pass(hb.wallNow().Sub(ha.wallNow()))
			k := s.take(a, ttl)
			for i := range 3 {
				s.node(i).Stop()
				s.node(i).FlushAll()
			}
			time.Sleep(2 * ttl) // they stay away, for longer than any ttl
			for i := range 3 {
				s.node(i).Start()
			}
			s.again(b)
			hb.pass(time.Hour) // since the grant, by a true clock
			hb.setWall(late - time.Hour)
			next := s.take(b, ttl)
			if got, want := next.Fence()-k.Fence(), late.Microseconds(); got != want {
				t.Errorf("clocks that differ by %v less than the time since the grant: the token is %d above the one before, want %d", late, got, want)
			}
		})
	}
}

// The nearest two of five far nodes die: what is left is as far as its third, and no
// farther.
//
// Attacks 32, 96.
func TestTheTwoNearestOfFiveFarNodesDie(t *testing.T) {
	far := []time.Duration{2 * time.Millisecond, 12 * time.Millisecond, 35 * time.Millisecond, 70 * time.Millisecond, 140 * time.Millisecond}
	for name, dies := range map[string]func(s *stage, i int){
		"stopped": func(s *stage, i int) { s.node(i).Stop() },
		"hung":    func(s *stage, i int) { s.node(i).Hang() },
		"cut off": func(s *stage, i int) { s.node(i).Partition() },
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, 5, func(s *stage) {
				for i, d := range far {
					s.slow(d, i)
				}
				l := s.locker(redlock.Options{})
				s.cycle(l, 10*time.Second)
				time.Sleep(time.Second)
				held := s.take(l, 20*time.Second)
				time.Sleep(far[4])
				for i := range 2 {
					dies(s, i)
				}
				check := func(what string, f func() error) {
					t.Helper()
					var err error
					d := took(func() { err = f() })
					if err != nil || d < far[4] || d > far[4]+2*oneTrip {
						t.Errorf("%s with the two nearest %s: took %v, %v; want the farthest's %v", what, name, d, err, far[4])
					}
				}
				check("Extend", func() error { return held.Extend(s.ctx) })
				time.Sleep(time.Second)
				check("Release", func() error { return held.Release(s.ctx) })
				time.Sleep(2 * time.Second)
				for n := range 3 {
					var k *redlock.Lock
					key := fmt.Sprint("jobs/", n)
					check("TryAcquire", func() (err error) { k, err = l.TryAcquire(s.ctx, key, 10*time.Second); return err })
					if k == nil {
						return
					}
					time.Sleep(time.Second)
					check("Extend", func() error { return k.Extend(s.ctx) })
					time.Sleep(time.Second)
					check("Release", func() error { return k.Release(s.ctx) })
					time.Sleep(time.Second)
				}
				s.clean(l)
			})
		})
		t.Run(name+" before they were ever met", func(t *testing.T) {
			onStage(t, 5, func(s *stage) {
				for i, d := range far {
					s.slow(d, i)
				}
				for i := range 2 {
					dies(s, i)
				}
				l := s.cold(redlock.Options{}, nil, s.c.Nodes())
				var k *redlock.Lock
				var err error
				d := took(func() { k, err = l.TryAcquire(s.ctx, job, 10*time.Second) })
				if want := 6 * far[4]; err != nil || d > want { // a dial, what it is set up with, scripts
					t.Fatalf("TryAcquire: got %v after %v, want the lock within %v", err, d, want)
				}
				s.is("Release", k.Release(s.ctx), nil)
				s.clean(l)
			})
		})
	}
}
