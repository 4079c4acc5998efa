package sim

import (
	"math/rand/v2"
	"time"
)

// A drawer makes a schedule's choices, from a seed or from rapid.
type drawer interface {
	// IntN returns a number in [0, n).
	IntN(n int, what string) int
}

type seeded struct{ r *rand.Rand }

func (d seeded) IntN(n int, _ string) int { return d.r.IntN(n) }

// Generate draws a schedule of a profile from a seed.
func Generate(p *Profile, seed uint64) *Schedule {
	d := seeded{rand.New(rand.NewPCG(seed, mix(uint64(len(p.Name)), uint64(p.Name[0]), uint64(p.Name[len(p.Name)-1]))))}
	sch := environment(d, p, seed)
	sch.minClaims = p.MinClaims
	for at := time.Duration(0); at < p.Length; at += gap(d, p.Every) {
		if p.Crowd == 0 {
			sch.Tasks = append(sch.Tasks, p.task(d, sch, at))
			continue
		}
		for range 1 + d.IntN(p.Crowd, "crowd") {
			sch.Tasks = append(sch.Tasks, p.task(d, sch, at+between(d, [2]time.Duration{0, 4 * p.Job}, "later")))
		}
	}
	if len(p.Faults) > 0 {
		for at := time.Duration(0); at < p.Length; at += gap(d, p.FaultEvery) {
			if f := p.fault(d, sch, at); at%stormPeriod < p.storm() {
				sch.Faults = append(sch.Faults, f)
			}
		}
	}
	if p.Several {
		sch.crowdAtEnd()
	}
	return sch
}

// environment draws everything except the tasks and the faults.
func environment(d drawer, p *Profile, seed uint64) *Schedule {
	n := p.Nodes[d.IntN(len(p.Nodes), "nodes")]
	sch := &Schedule{Profile: p.Name, Seed: seed, Nodes: n, Keys: p.Keys, Several: p.Several, Unfenced: p.Unfenced, Subscribers: p.Subscribers, Fair: p.Fair, Unsafe: p.Unsafe, FencesGrow: p.Away, Grace: p.Grace, Edges: p.Edges, Alone: p.Alone, Latency: between(d, p.Latency, "lead")}
	if p.Slots > 0 {
		sch.Slots = 1 + d.IntN(p.Slots, "slots")
		sch.Keys += sch.Slots
	}
	if p.Guard {
		sch.Guard, sch.FencesGrow = p.TTL[1], true
	}
	if p.Rates[1] != 0 {
		for range n {
			sch.Rates = append(sch.Rates, p.Rates[0]+(p.Rates[1]-p.Rates[0])*float64(d.IntN(1001, "rate"))/1000)
		}
	}
	if p.Ahead != 0 {
		for range n {
			sch.Ahead = append(sch.Ahead, between(d, [2]time.Duration{-p.Ahead, p.Ahead}, "ahead"))
		}
	}
	if p.Minority {
		first := d.IntN(n, "minority")
		for i := range n - (n/2 + 1) {
			sch.FaultyNodes = append(sch.FaultyNodes, (first+i)%n)
		}
	}
	for range p.Clients[0] + d.IntN(p.Clients[1]-p.Clients[0]+1, "clients") {
		c := Client{NodeTimeout: time.Duration(p.Timeout * float64(p.TTL[0]))}
		if p.Skew > 0 {
			c.Wall = between(d, [2]time.Duration{-p.Skew, p.Skew}, "skew")
		}
		if p.Edges {
			c.Panics, c.Wrapped = 30*d.IntN(2, "panics"), d.IntN(4, "wrapped") == 0
		}
		if p.Mixed {
			c.Fair = d.IntN(2, "fair") == 0
		}
		sch.Clients = append(sch.Clients, c)
	}
	return sch
}

// task draws a task that begins at the given time.
func (p *Profile) task(d drawer, sch *Schedule, at time.Duration) Task {
	t := Task{At: at, Client: d.IntN(len(sch.Clients), "client"), Key: d.IntN(sch.Keys, "key"), Do: choose(d, p.Tasks, "do"), TTL: between(d, p.TTL, "ttl").Round(ms / 2)}
	t.Wait = between(d, [2]time.Duration{5 * ms, 2 * t.TTL}, "wait")
	t.Hold = between(d, [2]time.Duration{0, t.TTL / 2}, "hold")
	if p.Lasting && (t.Do == Try || t.Do == Cancel || t.Do == Acquire) && d.IntN(4, "lasting") == 0 {
		t.TTL = time.Minute // so that leftovers can be seen
	}
	drawTimes(d, &t)
	if p.Edges {
		p.drawEdges(d, &t)
	}
	if p.Job > 0 { // so short that many callers wait for each other
		if t.Do != Last {
			t.Hold = between(d, [2]time.Duration{0, p.Job}, "hold")
		}
		if t.Do != Rush {
			t.Times = min(t.Times, 2)
		}
	}
	if p.Minority && t.Do == Try {
		t.Wait = 4 * t.TTL // the duration is judged, so it must not be cut off
	}
	if t.Do == Extend && p.Minority {
		t.Hold = between(d, [2]time.Duration{t.TTL / 4, t.TTL / 2}, "hold")
	}
	if p.Several {
		drawSeveral(d, sch, &t)
	}
	if p.Unfenced {
		t.Bare = d.IntN(2, "fence") == 0
		if t.Do == Adopt && t.Key == sch.Keys-1 { // an adoption has a note in the register
			t.Key--
		}
	}
	return t
}

// drawTimes draws the durations that a behaviour needs in addition to, or instead of, the usual ones.
func drawTimes(d drawer, t *Task) {
	switch t.Do {
	case Vulture:
		t.Times = 1 + d.IntN(6, "times")
		t.Late = between(d, [2]time.Duration{-2 * ms, 4 * ms}, "late")
		t.Hold /= 8
		t.Wait = t.TTL
	case Last:
		t.Hold = between(d, [2]time.Duration{1, 2 * ms}, "hold")
		t.Late = between(d, [2]time.Duration{0, t.TTL}, "late")
		t.Wait = 4 * t.TTL
	case Extend:
		t.Times = 1 + d.IntN(8, "times")
		t.Hold = between(d, [2]time.Duration{t.TTL / 4, t.TTL}, "hold")
		t.Wait = 2 * t.TTL
	case Rush:
		t.Times = 2 + d.IntN(5, "adopters")
		t.Late = []time.Duration{0, atRelease, andRelease}[d.IntN(3, "and the release")]
	case Again:
		t.Wait = 2 * t.TTL
	case Lead:
		t.Hold = between(d, [2]time.Duration{0, 2 * t.TTL}, "hold")
		t.Wait = 10 * t.TTL
	case Watch:
		t.Wait = 4 * t.TTL
	case Keep, Within, Die:
		t.Hold = between(d, [2]time.Duration{0, 4 * t.TTL}, "hold")
		t.Wait = 2 * t.TTL
	case Adopt:
		if d.IntN(2, "brief") == 0 {
			t.Wait = between(d, [2]time.Duration{1, 3 * ms}, "wait")
		}
	case Cancel:
		t.Wait = between(d, [2]time.Duration{1, 3 * ms}, "wait")
		t.Late = between(d, [2]time.Duration{0, 2 * ms}, "late")
	}
}

// drawEdges draws the ttls of a profile with Edges, and keeps its adoptions away from one key.
func (p *Profile) drawEdges(d drawer, t *Task) {
	switch t.Do {
	case Rush, Adopt:
		if p.Alone > 0 && t.Key == p.Keys-1 { // an adoption would give the registers of that key a ttl
			t.Key--
		}
		fallthrough
	case Join, Fickle:
		t.TTL = []time.Duration{t.TTL, t.TTL, time.Minute, longLife}[d.IntN(4, "long")]
	}
}

// fault draws a fault that begins at the given time.
func (p *Profile) fault(d drawer, sch *Schedule, at time.Duration) Fault {
	f := Fault{At: at, For: between(d, p.FaultFor, "for"), Do: choose(d, p.Faults, "strike"), Node: d.IntN(sch.Nodes, "node"), Client: d.IntN(len(sch.Clients), "client"), Key: d.IntN(sch.Keys, "key"), N: 1 + d.IntN(4, "n")}
	if p.Minority {
		f.Node = sch.FaultyNodes[f.Node%len(sch.FaultyNodes)]
	}
	switch f.Do {
	case Slow:
		way := [2]time.Duration{100 * time.Microsecond, p.TTL[1] / 6}
		if p.Timeout > 0 { // so slow that the timeout, or the validity, is only just long enough
			way[1] = p.TTL[1] * 2 / 3
		}
		f.By, f.Back = between(d, way, "by"), between(d, way, "back")
	case Restart, Revert, Evict, EvictFence, Flush, EvictQueue, ResetSubs, MuteSubs:
		f.For = 0
	case SlowSubs:
		f.By = between(d, [2]time.Duration{1 * ms, 5 * s}, "by")
	case Rate:
		f.Rate = 0.25 + float64(d.IntN(400, "rate"))/100
	case Jump:
		f.By, f.For = between(d, [2]time.Duration{-p.TTL[1], p.TTL[1]}, "by"), 0
	case Wall:
		f.By, f.For = between(d, [2]time.Duration{-p.Skew, p.Skew}, "by"), 0
	case Forge: // For is how long a forged entry counts
		f.N = d.IntN(len(forgeries), "forgery")
	case Foreign:
		f.N = 1 + d.IntN(sch.Nodes, "foreign")
		f.By = []time.Duration{0, 0, 2 * s, time.Minute}[d.IntN(4, "foreign ttl")]
	case Deny:
		f.N, f.All = d.IntN(len(permissions), "permission"), d.IntN(2, "everywhere") == 0
	case Reject:
		f.N = d.IntN(len(rejections), "rejection")
		if d.IntN(8, "for good") == 0 {
			f.For = max(p.Length-at, f.For)
		}
	case Lose:
		if p.Away {
			f.For = p.TTL[1] + p.TTL[1]/10 + time.Second
		}
	}
	return f
}

// Faults come in storms. In the calm between two storms everything must be cleaned up, which audit checks.
const (
	stormPeriod = 40 * time.Second
	storm       = 25 * time.Second
)

// longLife is a ttl that differs greatly from the others.
const longLife = 24 * time.Hour

// storm returns how long faults are injected in each period; the rest of the period is calm.
func (p *Profile) storm() time.Duration {
	if p.Storm > 0 {
		return p.Storm
	}
	return storm
}

// gap draws the time to the next event with the given average interval. An exponential distribution would be right; this is near enough.
func gap(d drawer, every time.Duration) time.Duration {
	return max(between(d, [2]time.Duration{0, 2 * every}, "gap"), 1)
}

// between draws a duration in the range r, in steps of a millionth of it.
func between(d drawer, r [2]time.Duration, what string) time.Duration {
	if r[1] <= r[0] {
		return r[0]
	}
	const steps = 1_000_000
	n := min(int64(r[1]-r[0]), steps)
	return r[0] + time.Duration(float64(r[1]-r[0])*float64(d.IntN(int(n)+1, what))/float64(n))
}

// choose draws an element of a weighted list.
func choose[T any](d drawer, list []weighted[T], what string) T {
	sum := 0
	for _, e := range list {
		sum += e.w
	}
	n := d.IntN(sum, what)
	for _, e := range list {
		if n -= e.w; n < 0 {
			return e.v
		}
	}
	panic("unreachable")
}
