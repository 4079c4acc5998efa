package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// faultTarget bounds acquire and release while nodes are faulty, as a multiple of five healthy nodes.
const faultTarget = 1.2

// A condition is five nodes, of which one or two may be faulty. All conditions share the other nodes and exist at the same
// time, so that the noise of the machine affects all of them.
type condition struct {
	name  string
	addrs []string
}

const (
	allUp   = "all up"
	oneDead = "one dead"
	oneHung = "one hung"
	oneSlow = "one slow by 50 ms"
	twoDead = "two dead"
)

const onsetSection = "onset"

var faultGoroutines = []int{1, 64}

func faultSection(g int) string { return fmt.Sprintf("faults %d", g) }

func faults(ctx context.Context, b *bench) {
	extra := must(realredis.StartServers(4))
	defer closeServers(extra)
	refusing, hanging, far, second := extra[0], extra[1], extra[2], extra[3]
	slow := newLink(far.Addr(), 50*time.Millisecond)
	defer slow.Close()
	conds := []condition{
		{allUp, b.addrs}, {oneDead, b.with(4, refusing)}, {oneHung, b.with(4, hanging)},
		{oneSlow, append(b.with(4), slow.Addr())}, {twoDead, b.with(3, second, refusing)},
	}
	onset(ctx, b, conds[:3], []strike{{nothing, nothing}, {refusing.Kill, refusing.Restart}, {hanging.Stop, hanging.Cont}})
	check(errors.Join(refusing.Kill(), second.Kill(), hanging.Stop()))
	steady(ctx, b, conds)
	peers(ctx, b, conds, nameRedsync)
	peers(ctx, b, conds, nameFailFast)
	check(ctx.Err())
}

// A strike makes the fifth node of a condition faulty, and ends that again.
type strike struct{ on, off func() error }

// onset measures the longest acquire and release around the moment in which a healthy node becomes faulty.
func onset(ctx context.Context, b *bench, conds []condition, strikes []strike) {
	for rep := range b.reps {
		b.progress("onset, repetition %d of %d", rep+1, b.reps)
		for i, c := range conds {
			t := c.struck(ctx, strikes[i], rep, b.after)
			b.report.enter(onsetSection, nameOurs, c.name, values{
				{"acquire max ms", quantile(t.acquire, 1)}, {"release max ms", quantile(t.release, 1)}, {mFailed, float64(t.failed)},
			})
		}
	}
}

// struck does cycles from 200 ms before the strike until some time after it, and ends the fault.
func (c condition) struck(ctx context.Context, s strike, rep int, after time.Duration) *timing {
	const before = 200 * time.Millisecond
	l := load{c: c.contender(nameOurs, fmt.Sprintf("onset %s %d", c.name, rep)), g: 1} // has not seen the node faulty
	defer l.c.close()
	l.runCycles(ctx, 50)
	done := make(chan error, 1)
	time.AfterFunc(before, func() { done <- s.on() })
	t := l.runFor(ctx, before+after)
	check(errors.Join(<-done, s.off(), ctx.Err()))
	return t
}

// contender returns one over the nodes of the condition.
func (c condition) contender(name, keys string) *contender {
	made := contenders(c.addrs, name)[0]
	made.keys = keys
	return made
}

func nothing() error { return nil }

// steady measures while the faults last. Each condition has keys of its own: a release returns with a majority, and on shared
// nodes the next condition's Locker could find keys that are still to be deleted.
//
// Beside the library runs the bare quorum, with three of five and with three of four. The latter is what every lock on five
// nodes has left when one is dead.
func steady(ctx context.Context, b *bench, conds []condition) {
	var loads []load
	for i, cond := range append(slices.Clone(conds), conds[0], condition{oneDead, b.addrs[:4]}) {
		name := nameOurs
		if i >= len(conds) {
			name = nameOurFloor
		}
		c := cond.contender(name, name+" "+cond.name)
		defer c.close()
		loads = append(loads, load{c: c, kase: cond.name})
	}
	for _, g := range faultGoroutines {
		for i := range loads {
			loads[i].g = g
		}
		blocks, cycles := 5*b.faultBlocks, 25 // in fewer cycles, the clean-up after the previous condition would count
		if g > 1 {                            // all goroutines begin at one instant; in short blocks, their first cycles would be the p99
			blocks, cycles = max(b.faultBlocks/3, 1), 8*cycles
		}
		b.blocks(ctx, faultSection(g), blocks, cycles, loads)
	}
}

// peers measures redsync on the same nodes. It waits for the faulty node for seconds, so there are few cycles and the
// conditions run side by side, except for the healthy one.
func peers(ctx context.Context, b *bench, conds []condition, name string) {
	b.progress("%s, which takes up to %d times 10 s", name, b.peerCycles)
	timings := make([]*timing, len(conds))
	one := func(i, n int) {
		c := conds[i].contender(name, "peer "+conds[i].name)
		defer c.close()
		timings[i] = load{c: c, g: 1}.runCycles(ctx, n)
	}
	one(0, 100)
	var wg sync.WaitGroup
	for i := range conds[1:] {
		wg.Go(func() { one(i+1, b.peerCycles) })
	}
	wg.Wait()
	for i, cond := range conds {
		b.report.halves(faultSection(1), name, cond.name, timings[i])
		b.report.enter(faultSection(1), name, cond.name, values{{"cycles", float64(timings[i].done)}})
	}
}

// ofAllUp returns what a contender takes in a case, as a multiple of what it takes with all nodes up.
func (r *report) ofAllUp(g int, who, kase, metric string) *series {
	return r.find(faultSection(g), who, kase, metric).over(r.find(faultSection(g), who, allUp, metric))
}

// faultsTables has the ratios; what is measured is in the raw tables.
func faultsTables(r *report) (tables []table) {
	const threeOfFour = nameOurFloor + ", three of four"
	for _, g := range faultGoroutines {
		cases := append(without(r.cases(faultSection(g), mAcquire99), allUp), threeOfFour)
		tables = append(tables, grid(fmt.Sprintf("faults-ratio-%d", g), "redlock with faulty nodes, as a multiple of all up, "+goroutines(g), "", cases, halves, func(c, m string) string {
			if c == threeOfFour {
				return r.ofAllUp(g, nameOurFloor, oneDead, m).spread("%.2f")
			}
			return r.ofAllUp(g, nameOurs, c, m).spread("%.2f")
		}))
	}
	return tables
}
