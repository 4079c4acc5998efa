package redlock_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// A crowd is fair and unfair Lockers that contend while somebody plays with queues and
// nodes.
type crowd struct {
	fair  []bool
	seed  uint64
	steps []crowdStep
}

type crowdStep struct {
	do     string
	locker int
	node   int
	n      int
	ttl    time.Duration
	limit  time.Duration
	pause  time.Duration
}

const (
	crowdQueue  = "{jobs/42}:queue"
	crowdExpiry = "{jobs/42}:queue:expiry"

	pollPause = 5 * time.Second  // between looks at a held lock whose release would be heard
	placeDead = 2 * time.Second  // so long a place in turn counts that nobody refreshes
	queueGone = 16 * time.Second // and after that a queue is gone that nobody is in
)

func (s crowdStep) String() string {
	return fmt.Sprintf("{%s locker=%d node=%d n=%d ttl=%v limit=%v pause=%v}", s.do, s.locker, s.node, s.n, s.ttl, s.limit, s.pause)
}

var (
	waitSteps   = []string{"acquire", "acquire", "acquire", "acquire", "try", "release", "release"}
	mishapSteps = []string{"crash", "lose", "drop", "hang", "cut", "slow", "mend", "mend", "mute", "evict-sub", "close"}
	forgeSteps  = []string{"zadd", "zadd", "zrem", "del", "future", "announce"}
)

func drawCrowd(t *rapid.T, forged bool) crowd {
	ms := func(lo, hi int) *rapid.Generator[time.Duration] {
		return rapid.Map(rapid.IntRange(lo*10, hi*10), func(n int) time.Duration { return time.Duration(n) * 100 * time.Microsecond })
	}
	sorts := [][]string{waitSteps, waitSteps, mishapSteps}
	if forged {
		sorts = [][]string{waitSteps, forgeSteps}
	}
	one := rapid.Custom(func(t *rapid.T) crowdStep {
		return crowdStep{
			locker: rapid.IntRange(0, 3).Draw(t, "locker"),
			node:   rapid.IntRange(0, 2).Draw(t, "node"),
			n:      rapid.IntRange(0, 5).Draw(t, "n"),
			ttl:    ms(50, 1500).Draw(t, "ttl"),
			limit:  rapid.OneOf(ms(0, 3), ms(5, 400), ms(400, 4000)).Draw(t, "limit"),
			pause:  rapid.OneOf(ms(0, 1), ms(0, 30), ms(0, 800)).Draw(t, "pause"),
			do:     rapid.SampledFrom(rapid.SampledFrom(sorts).Draw(t, "sort")).Draw(t, "do"),
		}
	})
	return crowd{
		fair:  rapid.SampledFrom([][]bool{{false, false, false}, {true, true, true}, {true, false, true, false}}).Draw(t, "fair"),
		seed:  uint64(rapid.IntRange(0, 1<<20).Draw(t, "seed")),
		steps: rapid.SliceOfN(one, 1, 30).Draw(t, "steps"),
	}
}

// runCrowd runs a schedule and judges it: no two hold the lock at once, fences grow,
// nobody who waits is forgotten, nothing is left.
func runCrowd(t *testing.T, s crowd) (failures []string, acquired int) {
	redlocktest.BubbleFunc(t, func() {
		const nodes = 3
		w := &world{t: t, c: redlocktest.NewSeeded(t, nodes, s.seed)}
		for i, fair := range s.fair {
			l, err := harness.NewSeamed(redlock.Options{Name: "c" + strconv.Itoa(i), Fair: fair}, nil, nil, s.seed+uint64(i), w.c.Nodes()...)
			if err != nil {
				t.Fatal(err)
			}
			w.lockers = append(w.lockers, l)
		}
		mend := func(n *redlocktest.Node) {
			w.mend(n)
			n.FailCommand("subscribe", "")
			n.FailCommand("publish", "")
		}
		for _, st := range s.steps {
			n := w.c.Node(st.node)
			place := "forged" + strconv.Itoa(st.n)
			ahead := strconv.FormatInt(n.Now().Add(time.Duration(st.n)*time.Second).UnixMilli(), 10)
			switch st.do {
			case "crash":
				n.Restart(true)
			case "cut":
				n.Partition()
			case "mend":
				mend(n)
			case "mute":
				n.FailCommand("subscribe", "NOPERM no channels")
				n.FailCommand("publish", "NOPERM no channels")
			case "evict-sub": // all connections, those of subscribers too
				n.Refuse(true)
				n.Refuse(false)
			case "close":
				if st.locker == len(w.lockers)-1 && len(w.lockers) > 2 {
					l := w.lockers[st.locker]
					w.lockers = w.lockers[:st.locker]
					w.mu.Lock()
					claims := slices.Clone(w.claims)
					w.mu.Unlock()
					for _, c := range claims {
						if c.locker == st.locker {
							w.end(c, time.Now())
						}
					}
					w.wg.Go(func() { l.Close() })
				}
			case "zadd":
				n.Do("ZADD", crowdQueue, strconv.Itoa(st.n), place)
				n.Do("ZADD", crowdExpiry, ahead, place)
			case "future":
				n.Do("ZADD", crowdQueue, "+inf", place)
				n.Do("ZADD", crowdExpiry, "+inf", place)
			case "zrem":
				if first, _ := n.Do("ZRANGE", crowdQueue, "0", "0"); first != nil {
					if list := first.([]any); len(list) > 0 {
						n.Do("ZREM", crowdQueue, list[0].(string))
					}
				}
			case "del":
				n.Do("DEL", []string{crowdQueue, crowdExpiry}[st.n%2])
			case "announce":
				if channels, err := n.Do("PUBSUB", "CHANNELS"); err == nil {
					for _, c := range channels.([]any) {
						n.Do("PUBLISH", c.(string), "1 forged")
					}
				}
			default:
				w.do(step{do: st.do, locker: st.locker, lock: st.n % 3, node: st.node, n: st.n%3 + 1, ttl: st.ttl, limit: st.limit})
			}
			time.Sleep(st.pause)
			w.checkNow()
		}
		// Faults end, and whoever holds it lets it go or lapse. Then who waits has it, one
		// after the other: the pools dial again within a second, places lapse, a poll is over.
		for i := range nodes {
			mend(w.c.Node(i))
		}
		w.wg.Wait()
		time.Sleep(2 * time.Second)
		type result struct {
			lock *redlock.Lock
			err  error
		}
		late := make(chan result)
		ctx, stop := context.WithCancel(context.Background())
		waiting := 0
		for _, l := range w.lockers {
			for range 2 {
				waiting++
				go func() {
					k, err := l.Acquire(ctx, propertyKey, 500*time.Millisecond)
					late <- result{k, err}
				}()
			}
		}
		for waiting > 0 && ctx.Err() == nil {
			select {
			case now := <-late:
				waiting--
				if now.err != nil {
					w.fail("a waiter got %v", now.err)
					continue
				}
				now.lock.Release(context.Background())
			case <-time.After(pollPause + placeDead + 2*time.Second):
				w.fail("a free lock is not acquired though %d wait", waiting)
				stop()
			}
		}
		stop()
		for ; waiting > 0; waiting-- {
			<-late
		}
		w.checkClaims()
		time.Sleep(queueGone)
		w.checkLeftovers()
		failures, acquired = w.bad, len(w.claims)+2*len(w.lockers)
	})
	return failures, acquired
}

func checkCrowds(t *testing.T, forged bool, checks string) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		f.Value.Set(checks)
		if harness.Sparing {
			f.Value.Set("10")
		}
		defer f.Value.Set(f.DefValue)
	}
	runs, acquired := 0, 0
	defer func() { t.Logf("%d crowds, %d acquisitions", runs, acquired) }()
	rapid.Check(t, func(rt *rapid.T) {
		s := drawCrowd(rt, forged)
		bad, n := runCrowd(t, s)
		runs, acquired = runs+1, acquired+n
		if len(bad) > 0 {
			rt.Fatalf("fair %v, seed %d, %d steps:\n  %v\n%s", s.fair, s.seed, len(s.steps), s.steps, strings.Join(bad, "\n"))
		}
	})
}

// Attacks 73, 89, 90.
func TestNoWaiterIsLost(t *testing.T) { checkCrowds(t, false, "25") }

// Attack 90.
func TestQueuesThatAreTamperedWithBreakNothing(t *testing.T) { checkCrowds(t, true, "25") }
