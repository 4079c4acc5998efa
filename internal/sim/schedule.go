package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Schedule is what happens in one run. It is drawn before the run, so that a failing one can shrink to the steps
// that matter.
type Schedule struct {
	Profile string
	Seed    uint64 // of latencies and of the Lockers' own randomness
	Nodes   int
	Keys    int
	Ears    bool            // clients subscribe to releases
	Fair    bool            // Options.Fair, of all clients
	Guard   time.Duration   // Options.RestartGuard, of all clients: then nothing that nodes forget is an excuse
	Grace   time.Duration   // Options.Grace, of all clients
	Lead    time.Duration   // each request and each reply travels for as long; 0: some 0.1 ms
	Rates   []float64       // of the nodes' clocks; a node beyond the list runs at 1
	Ahead   []time.Duration // by how much they are
	Clients []Client
	Tasks   []Task
	Faults  []Fault

	// What the environment is good for. The judges go by these and not by the profile's name.
	Unsafe bool  // clocks break the rules: I1 is not promised
	Prompt []int // if not nil: faults strike these nodes only, a minority, and I5 is judged by latency
	Grows  bool  // registers are lost, but fences grow all the same (I2, its second half)

	Edges bool // code of the user's panics, and values of others stand in the way: see edges.go, and stays.go for its judges
	Alone int  // of the keys, the last so many are not acquired once the faults are over, which would clean up beside them

	least int // acquisitions, or the run means nothing
}

// A Client is a process: one Locker with connections of its own.
type Client struct {
	Wall        time.Duration // how far its wall clock is ahead
	NodeTimeout time.Duration // of its Options
	Panics      int           // of so many callbacks one panics; 0: none does
	Wrapped     bool          // its nodes are of a foreign type, which hides what they can do
}

// A Task is what a goroutine of a client does from At on.
type Task struct {
	At     time.Duration
	Client int
	Key    int
	Do     Behaviour
	TTL    time.Duration
	Wait   time.Duration // the caller's patience
	Hold   time.Duration // how long it means to keep the lock
	Times  int           // how often
	Late   time.Duration // how much after something it acts; may be negative
}

// A Behaviour is what kind of client code a task is.
type Behaviour string

// The behaviours. All but the last three write to the store while they hold the lock.
const (
	Try     Behaviour = "try"     // TryAcquire, a short job, Release
	Acquire Behaviour = "acquire" // the same, waiting
	Extend  Behaviour = "extend"  // renews by hand, a number of times
	Keep    Behaviour = "keep"    // KeepAlive
	Within  Behaviour = "run"     // Run
	Last    Behaviour = "last"    // holds to the last moment, writes then and once more behind it, then releases
	Leave   Behaviour = "leave"   // LeaveToExpire
	Adopt   Behaviour = "adopt"   // takes over from whoever holds the key
	Vulture Behaviour = "vulture" // comes when the holder's Until is over, to the nanosecond or so
	Cancel  Behaviour = "cancel"  // gives up in the midst of it
	Fickle  Behaviour = "fickle"  // waits, and gives up within half a millisecond of a release
	Die     Behaviour = "die"     // the process ends while it holds the lock
	Close   Behaviour = "close"   // closes the Locker while it is in use, and starts another
	Inspect Behaviour = "inspect"
	Rush    Behaviour = "rush"  // several callers adopt the same value at once, in one Locker and in others
	Join    Behaviour = "join"  // comes just before its own process releases the lock, and gives up about then
	Quit    Behaviour = "quit"  // leaves the lock to expire from within Run
	Again   Behaviour = "again" // releases, and once more after Until
)

// A Fault strikes at At and is over after For.
type Fault struct {
	At, For time.Duration
	Do      Strike
	Node    int
	Client  int
	Key     int
	N       int           // how many commands
	By      time.Duration // how slow, or how far a clock is set
	Back    time.Duration // how slow the replies are
	Rate    float64
	All     bool // every node
}

// A Strike is what kind of fault it is.
type Strike string

// The faults. Those of a link are between one client and one node.
const (
	Slow        Strike = "slow"          // requests take By longer, replies Back
	DropRequest Strike = "drop-requests" // the connection breaks before the next N commands
	DropReply   Strike = "drop-replies"  // the connection breaks behind them
	LoseReply   Strike = "lose-replies"  // they are executed, and nothing more is heard on the connection
	Cut         Strike = "cut"           // both ways; held, and delivered after the heal
	CutRequests Strike = "cut-requests"
	CutReplies  Strike = "cut-replies"
	CutLink     Strike = "cut-link" // one client from one node
	Refuse      Strike = "refuse"   // dials are refused, connections reset
	Hang        Strike = "hang"     // SIGSTOP
	Stop        Strike = "stop"     // kill -9; the data is kept
	Restart     Strike = "restart"  // at once, the data is kept
	Loading     Strike = "loading"
	ReadOnly    Strike = "readonly"
	OOM         Strike = "oom"    // writes that want memory are refused
	Lose        Strike = "lose"   // crash; all data is gone; back after For
	Revert      Strike = "revert" // crash; back with the data of the last second
	Evict       Strike = "evict"  // the lock's key
	EvictFence  Strike = "evict-fence"
	Flush       Strike = "flush"       // FLUSHALL
	Rate        Strike = "rate"        // the node's clock runs at Rate
	Jump        Strike = "jump"        // the node's clock is set by By
	Wall        Strike = "wall"        // the client's wall clock is set by By
	Pause       Strike = "pause"       // the client's goroutines stop wherever they pass by
	EvictQueue  Strike = "evict-queue" // one of the two keys that it is made of, or both
	Vanish      Strike = "vanish"      // the client's machine is gone, its connections stay half-open; after For another process starts in its place
	Kill        Strike = "kill"        // the client's process ends, its connections with it; likewise
	ResetEars   Strike = "reset-ears"  // the node resets all connections with a subscription
	MuteEars    Strike = "mute-ears"   // nothing more is heard on them
	SlowEars    Strike = "slow-ears"   // what is said on them takes By longer
	NoPublish   Strike = "no-publish"  // announcements are refused
	Deny        Strike = "deny"        // the node's user lacks a permission: of the N-th in permissions
	Foreign     Strike = "foreign"     // N nodes have a value of somebody else's at the key, with a ttl of By; 0: without
	Throw       Strike = "throw"       // of the client's calls to the node, every fourth panics
)

func (t Task) String() string {
	s := fmt.Sprintf("%v c%d k%d %s ttl=%v", t.At, t.Client, t.Key, t.Do, t.TTL)
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"wait", t.Wait}, {"hold", t.Hold}, {"late", t.Late}} {
		if f.d != 0 {
			s += fmt.Sprintf(" %s=%v", f.name, f.d)
		}
	}
	if t.Times != 0 {
		s += fmt.Sprintf(" times=%d", t.Times)
	}
	return s
}

func (f Fault) String() string {
	s := fmt.Sprintf("%v %s", f.At, f.Do)
	switch f.Do {
	case Wall, Pause, Vanish, Kill:
		s += fmt.Sprintf(" c%d", f.Client)
	case CutLink, Throw:
		s += fmt.Sprintf(" c%d-%s", f.Client, nodeName(f.Node))
	case Evict, EvictFence, EvictQueue, Foreign:
		s += fmt.Sprintf(" %s k%d", nodeName(f.Node), f.Key)
	default:
		s += " " + nodeName(f.Node)
	}
	if f.For != 0 {
		s += fmt.Sprintf(" for %v", f.For)
	}
	switch f.Do {
	case DropRequest, DropReply, LoseReply, EvictQueue:
		s += fmt.Sprintf(" n=%d", f.N)
	case Deny:
		s += fmt.Sprintf(" %v", f.permission())
		if f.All {
			s += " everywhere"
		}
	case Foreign:
		s += fmt.Sprintf(" n=%d ttl=%v", f.N, f.By)
	case Slow:
		s += fmt.Sprintf(" by %v and %v", f.By, f.Back)
	case Wall, Jump, SlowEars:
		s += fmt.Sprintf(" by %v", f.By)
	case Rate:
		s += fmt.Sprintf(" %v", f.Rate)
	}
	return s
}

// String is the schedule as a failing run prints it.
func (s *Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s seed=%d: %d nodes, %d clients, %d keys", s.Profile, s.Seed, s.Nodes, len(s.Clients), s.Keys)
	if s.Lead != 0 {
		fmt.Fprintf(&b, ", %v each way", s.Lead)
	}
	if s.Grace != 0 {
		fmt.Fprintf(&b, ", a grace of %v", s.Grace)
	}
	if len(s.Rates) > 0 {
		fmt.Fprintf(&b, ", clocks at %v", s.Rates)
	}
	if len(s.Ahead) > 0 {
		fmt.Fprintf(&b, ", clocks ahead by %v", s.Ahead)
	}
	for i, c := range s.Clients {
		if c != (Client{}) {
			fmt.Fprintf(&b, ", c%d: wall %v, node timeout %v", i, c.Wall, c.NodeTimeout)
		}
	}
	b.WriteString("\n")
	for _, t := range s.Tasks {
		fmt.Fprintf(&b, "  task  %v\n", t)
	}
	for _, f := range s.Faults {
		fmt.Fprintf(&b, "  fault %v\n", f)
	}
	return b.String()
}

// Ends is when the last fault is over.
func (s *Schedule) Ends() time.Duration {
	last := time.Duration(0)
	for _, f := range s.Faults {
		last = max(last, f.At+f.For)
	}
	for _, t := range s.Tasks {
		last = max(last, t.At)
	}
	return last
}

// longest is the greatest ttl.
func (s *Schedule) longest() time.Duration {
	ttl := time.Second
	for _, t := range s.Tasks {
		ttl = max(ttl, t.TTL)
	}
	return ttl
}

func (s *Schedule) prompt() bool       { return len(s.Prompt) > 0 }
func (s *Schedule) healthy(n int) bool { return !slices.Contains(s.Prompt, n) }
func (s *Schedule) rate(n int) float64 {
	if n < len(s.Rates) && s.Rates[n] > 0 {
		return s.Rates[n]
	}
	return 1
}

func nodeName(i int) string { return string(rune('a' + i)) }
func keyName(i int) string  { return fmt.Sprintf("k%d", i) }

// registerName is where the fence register of a key stands, as docs/design/algorithm.md says.
func registerName(i int) string { return "{" + keyName(i) + "}:fence" }

// queueNames are where its queue stands, as docs/waiting.md says.
func queueNames(i int) (queue, lapse string) {
	return "{" + keyName(i) + "}:queue", "{" + keyName(i) + "}:lapse"
}
