package sim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"
)

// An instant is virtual time since the run began.
type instant = time.Duration

const never instant = math.MaxInt64

// A History is what was seen of a run, from outside: what the clients called and got, what the operator did, and what the
// nodes held at certain instants.
type History struct {
	Schedule *Schedule
	Ops      []Op     // in order of return
	Claims   []*Claim // in order of return
	Writes   []Write
	Losses   []Loss
	Struck   []Struck
	Seen     []Violation // what was wrong at the very instant it was looked at
	Revived  []instant   // liveness: how long each acquisition after the last fault took
	Length   instant
	Commands uint64 // executed by the nodes, if traced
	Trace    uint64 // their hash, if traced
	Turns    int    // Fair: acquisitions before those who came later and wait, where order is promised; counted by Judge
}

// An Op is one call.
type Op struct {
	Client, Task, Key int
	Name              string
	Called, Returned  instant
	Outcome           string
	Text              string // of the error
}

// A Claim is one acquisition as its holder could believe in it.
type Claim struct {
	Client, Task, Key int
	Value             string
	Fence             int64
	TTL               time.Duration
	Called            instant // the call
	Start             instant // before the winning attempt's first request: Until less the validity
	Got               instant // the return
	Until             instant // once the run is over: the last
	Ended             instant // by the holder: release, hand-over, Close; never: not at all
	Why               string  // how it ended
	Registers         uint64  // which nodes had a register at Fence or above at Got, as bits
	Forgotten         instant // from then on a majority no longer carries it, because nodes forgot
	Adopting          instant // somebody began to take it over
}

// End is when the claim was over.
func (c *Claim) End() instant { return min(c.Until, c.Ended) }

func (c *Claim) String() string {
	return fmt.Sprintf("c%d k%d fence %d [%v, %v) %s", c.Client, c.Key, c.Fence, c.Got, c.End(), c.Why)
}

// A Write is one to the store that the locks protect.
type Write struct {
	At       instant
	Key      int
	Client   int
	Value    string // whose
	Fence    int64
	Accepted bool
	Claimed  bool // the writer was within its claim
}

// A Loss is a node that forgot something it had said yes to.
type Loss struct {
	At       instant
	Node     int
	Key      int
	Register bool   // the register, else
	Value    string // this holder's key
}

// A Struck is a fault as it struck, or ended.
type Struck struct {
	At   instant
	Text string
}

// A Violation is a promise that was broken.
type Violation struct {
	At      instant
	Promise string // I1 to I5, or what else a run owes
	Text    string
	Key     int // or -1
}

func (v Violation) String() string { return fmt.Sprintf("%v %s: %s", v.At, v.Promise, v.Text) }

// Hash is a fingerprint of all that was seen, to the nanosecond. What happened at one instant in different
// places has no order, so each place is hashed in an order of its own.
func (h *History) Hash() uint64 {
	sum := fnv.New64a()
	slices.SortStableFunc(h.Ops, func(a, b Op) int {
		return cmp.Or(cmp.Compare(a.Returned, b.Returned), cmp.Compare(a.Client, b.Client), cmp.Compare(a.Task, b.Task))
	})
	for _, o := range h.Ops {
		fmt.Fprintln(sum, o.Client, o.Task, o.Key, o.Name, int64(o.Called), int64(o.Returned), o.Outcome)
	}
	for _, c := range h.Claims {
		fmt.Fprintln(sum, *c)
	}
	for _, w := range h.Writes {
		fmt.Fprintln(sum, w)
	}
	for _, s := range h.Struck {
		fmt.Fprintln(sum, int64(s.At), s.Text)
	}
	for _, l := range h.Losses {
		fmt.Fprintln(sum, l)
	}
	fmt.Fprintln(sum, h.Seen, h.Revived, h.Length, h.Commands, h.Trace)
	return sum.Sum64()
}
