package sim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"
)

// An instant is the virtual time since the run began.
type instant = time.Duration

const never instant = math.MaxInt64

// A History is what was seen of a run from outside: what the clients called and got, which faults were injected, and what the
// nodes stored at certain instants.
type History struct {
	Schedule *Schedule
	Ops      []Op     // in order of return
	Claims   []*Claim // in order of return
	Writes   []Write
	Losses   []Loss
	Struck   []Struck
	Seen     []Violation // violations that were detected during the run
	Revived  []instant   // liveness: how long each acquisition after the last fault took
	Length   instant
	Commands uint64 // number of commands executed by the nodes, if traced
	Trace    uint64 // hash of these commands, if traced
	Turns    int    // Fair: acquisitions ahead of later callers that still wait, where order is promised; counted by Judge
}

// An Op is one call.
type Op struct {
	Client, Task, Key int
	Keys              []int // of a call for several
	Name              string
	Called, Returned  instant
	Outcome           string
	Text              string // of the error
}

// A Claim is one acquisition, with the period in which its holder could rely on it.
type Claim struct {
	Client, Task, Key int
	Value             string
	Fence             int64
	TTL               time.Duration
	Called            instant // the call
	Start             instant // before the first request of the winning attempt: Until less the validity
	Got               instant // the return
	Until             instant // the last one, set at the end of the run
	Ended             instant // by the holder: release, hand-over, Close; never if it was not ended
	Why               string  // how it ended
	Registers         uint64  // the nodes whose register was at or above Fence at Got, as bits
	Forgotten         instant // since when a majority no longer stores it, because nodes lost data
	Adopting          instant // when somebody began to adopt it
}

// leftOrReleased is how a claim ends whose holder does not know which: others may have the lock, and the key may stay.
const leftOrReleased = "left or released"

// End returns when the claim ended.
func (c *Claim) End() instant { return min(c.Until, c.Ended) }

func (c *Claim) String() string {
	return fmt.Sprintf("c%d k%d fence %d [%v, %v) %s", c.Client, c.Key, c.Fence, c.Got, c.End(), c.Why)
}

// A Write is a write to the store that the locks protect.
type Write struct {
	At       instant
	Key      int
	Client   int
	Value    string // the holder's
	Fence    int64
	Accepted bool
	Claimed  bool // the writer was within its claim
}

// A Loss is data that a node has confirmed and then lost.
type Loss struct {
	At       instant
	Node     int
	Key      int
	Register bool   // the register; otherwise the key
	Value    string // the value of the key that was lost
}

// A Struck is the begin or the end of a fault.
type Struck struct {
	At   instant
	Text string
}

// A Violation is a broken promise.
type Violation struct {
	At      instant
	Promise string // I1 to I5, or another obligation of a run
	Text    string
	Key     int // -1: none
}

func (v Violation) String() string { return fmt.Sprintf("%v %s: %s", v.At, v.Promise, v.Text) }

// Hash returns a fingerprint of everything that was seen, to the nanosecond. Events at the same instant in different places
// have no order, so each place is hashed in an order of its own.
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
