package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Schedule is everything that happens in one run. It is drawn before the run, so that a failing schedule can shrink to
// the steps that matter.
type Schedule struct {
	Profile     string
	Seed        uint64 // of latencies and of the Lockers' own random numbers
	Nodes       int
	Keys        int
	Slots       int             // this many of the keys, the last ones, are the slots of one key
	Several     bool            // tasks want several keys at once, or slots: see several.go
	Subscribers bool            // clients subscribe to releases
	Fair        bool            // Options.Fair of all clients
	Unfenced    bool            // some tasks want locks without a fence, and all tasks of the last key do
	Guard       time.Duration   // Options.RestartGuard of all clients; if set, I1 is judged whatever data the nodes lose
	Grace       time.Duration   // Options.Grace of all clients
	Latency     time.Duration   // how long each request and each reply travels; 0: about 0.1 ms
	Rates       []float64       // of the nodes' clocks; nodes beyond the list run at rate 1
	Ahead       []time.Duration // how far the nodes' clocks are ahead
	Clients     []Client
	Tasks       []Task
	Faults      []Fault

	// What the environment guarantees. The judges use these fields and not the name of the profile.
	Unsafe      bool  // clocks violate the assumptions: I1 is not promised
	FaultyNodes []int // if not nil: faults strike only these nodes, a minority, and I5 is judged by latency
	FencesGrow  bool  // registers are lost, but fences must increase all the same (the second half of I2)

	Edges bool // user code panics, and foreign values are in the way: see edges.go, and stays.go for the judges
	Alone int  // this many keys at the end of the list are not acquired after the last fault, which would clean them up

	minClaims int // minimum number of acquisitions for the run to be meaningful
}

// A Client is a process: one Locker with connections of its own.
type Client struct {
	Wall        time.Duration // how far its wall clock is ahead
	NodeTimeout time.Duration // Options.NodeTimeout
	Panics      int           // one callback in this many panics; 0: none does
	Wrapped     bool          // its nodes have a foreign type, which hides what they can do
	Fair        bool          // Options.Fair, if it differs between clients
}

// A Task is what one goroutine of a client does, starting at At.
type Task struct {
	At     time.Duration
	Client int
	Key    int
	Keys   []int // of a task that wants several; one may occur twice
	Do     Behaviour
	Bare   bool // it wants its locks without a fence
	TTL    time.Duration
	Wait   time.Duration // how long the caller waits
	Hold   time.Duration // how long it intends to hold the lock
	Times  int           // number of repetitions
	Late   time.Duration // how long after some event it acts; may be negative
}

// A Behaviour is the kind of client code that a task executes.
type Behaviour string

// The behaviours. All but Close, Inspect and Quit write to the store while they hold the lock.
const (
	Try     Behaviour = "try"     // TryAcquire, a short job, Release
	Acquire Behaviour = "acquire" // the same with Acquire
	Extend  Behaviour = "extend"  // calls Extend several times
	Keep    Behaviour = "keep"    // KeepAlive
	Within  Behaviour = "run"     // Run
	Lead    Behaviour = "lead"    // Lead: resigns after Hold, and campaigns again for as long as Wait
	Watch   Behaviour = "watch"   // Watch
	Last    Behaviour = "last"    // holds until the last moment, writes just before and after Until, then releases
	Leave   Behaviour = "leave"   // LeaveUntil
	Adopt   Behaviour = "adopt"   // adopts the lock of the current holder
	Vulture Behaviour = "vulture" // tries to acquire at the holder's Until, to within a few nanoseconds
	Cancel  Behaviour = "cancel"  // cancels its context in the middle of the acquisition
	Fickle  Behaviour = "fickle"  // waits, and gives up within half a millisecond of a release
	Die     Behaviour = "die"     // the process ends while it holds the lock
	Close   Behaviour = "close"   // closes the Locker while it is in use, and opens another
	Inspect Behaviour = "inspect"
	Rush    Behaviour = "rush"  // several callers adopt the same value at once, in one Locker and in others
	Join    Behaviour = "join"  // queues just before its own process releases the lock, and gives up at about that time
	Quit    Behaviour = "quit"  // calls LeaveUntil from within Run
	Again   Behaviour = "again" // releases, and releases again after Until

	// The behaviours of several.go.
	All        Behaviour = "all"         // AcquireAll; extends some of the locks, and releases all at once or one by one
	KeepAll    Behaviour = "keep-all"    // AcquireAll and Locks.KeepAlive
	WithinAll  Behaviour = "run-all"     // RunAll
	TryAll     Behaviour = "try-all"     // AcquireAll, without a wait
	FickleAll  Behaviour = "fickle-all"  // AcquireAll, given up within half a millisecond of a release
	Nest       Behaviour = "nest"        // holds one key while it acquires the next
	Slot       Behaviour = "slot"        // AcquireSlot
	KeepSlot   Behaviour = "keep-slot"   // AcquireSlot and KeepAlive; then it wants another slot as well
	WithinSlot Behaviour = "run-slot"    // RunSlot
	TrySlot    Behaviour = "try-slot"    // AcquireSlot, without a wait
	FickleSlot Behaviour = "fickle-slot" // AcquireSlot, given up within half a millisecond of a release
)

// A Fault begins at At and ends after For.
type Fault struct {
	At, For time.Duration
	Do      Strike
	Node    int
	Client  int
	Key     int
	N       int           // number of commands
	By      time.Duration // added latency, or the step of a clock
	Back    time.Duration // added latency of replies
	Rate    float64
	All     bool // on every node
}

// A Strike is a kind of fault.
type Strike string

// The kinds of faults. A link is the network between one client and one node.
const (
	Slow        Strike = "slow"          // requests take By longer, replies Back
	DropRequest Strike = "drop-requests" // the connection breaks before the next N commands are executed
	DropReply   Strike = "drop-replies"  // the connection breaks after they are executed
	LoseReply   Strike = "lose-replies"  // they are executed, and the client receives nothing more on the connection
	Cut         Strike = "cut"           // both directions; segments are held, and delivered after the heal
	CutRequests Strike = "cut-requests"
	CutReplies  Strike = "cut-replies"
	CutLink     Strike = "cut-link" // one client from one node
	Refuse      Strike = "refuse"   // dials are refused, connections reset
	Hang        Strike = "hang"     // SIGSTOP
	Stop        Strike = "stop"     // kill -9; the data is kept
	Restart     Strike = "restart"  // at once, the data is kept
	Loading     Strike = "loading"
	ReadOnly    Strike = "readonly"
	Reject      Strike = "reject" // every command is answered by the N-th of rejections
	OOM         Strike = "oom"    // writes that need memory are refused
	Lose        Strike = "lose"   // crash; all data is lost; back after For
	Revert      Strike = "revert" // crash; back with the data of up to a second ago
	Evict       Strike = "evict"  // the lock's key
	EvictFence  Strike = "evict-fence"
	Flush       Strike = "flush"       // FLUSHALL
	Rate        Strike = "rate"        // the node's clock runs at Rate
	Jump        Strike = "jump"        // the node's clock is stepped by By
	Wall        Strike = "wall"        // the client's wall clock is stepped by By
	Pause       Strike = "pause"       // the client's goroutines stop at their next call of waitWhilePaused
	EvictQueue  Strike = "evict-queue" // all of it, or the N-th half of its members: entries, or their expiry
	Vanish      Strike = "vanish"      // the client's machine disappears and leaves half-open connections; after For another process replaces it
	Kill        Strike = "kill"        // the client's process ends, and its connections with it; after For another replaces it
	ResetSubs   Strike = "reset-ears"  // the node resets all connections with a subscription
	MuteSubs    Strike = "mute-ears"   // the clients receive nothing more on these connections
	SlowSubs    Strike = "slow-ears"   // what the node sends on these connections takes By longer
	NoPublish   Strike = "no-publish"  // announcements are refused
	NoSubscribe Strike = "no-subscribe"
	NoRegister  Strike = "no-register" // on every node, attempts are stored and fail then
	Unheard     Strike = "unheard"     // as LoseReply, of every command and on every node; what is subscribed to is heard
	Forge       Strike = "forge"       // somebody tampers with a queue or announces a release: the N-th entry of forgeries
	Deny        Strike = "deny"        // the node's user lacks the N-th entry of permissions
	Foreign     Strike = "foreign"     // N nodes have a foreign value at the key, with a ttl of By; 0: without a ttl
	Throw       Strike = "throw"       // one in four of the client's calls to the node panics
)

func (t Task) String() string {
	s := fmt.Sprintf("%v c%d k%d %s ttl=%v", t.At, t.Client, t.Key, t.Do, t.TTL)
	if len(t.Keys) > 0 {
		s += fmt.Sprintf(" keys=%v", t.Keys)
	}
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
	if t.Bare {
		s += " without a fence"
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
	case Evict, EvictFence, EvictQueue, Foreign, Forge:
		s += fmt.Sprintf(" %s k%d", nodeName(f.Node), f.Key)
	default:
		s += " " + nodeName(f.Node)
	}
	if f.For != 0 {
		s += fmt.Sprintf(" for %v", f.For)
	}
	switch f.Do {
	case DropRequest, DropReply, LoseReply, EvictQueue, Forge, Reject:
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
	case Wall, Jump, SlowSubs:
		s += fmt.Sprintf(" by %v", f.By)
	case Rate:
		s += fmt.Sprintf(" %v", f.Rate)
	}
	return s
}

// String returns the schedule in the form in which a failing run prints it.
func (s *Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s seed=%d: %d nodes, %d clients, %d keys", s.Profile, s.Seed, s.Nodes, len(s.Clients), s.Keys)
	if s.Slots != 0 {
		fmt.Fprintf(&b, " of which %d are slots", s.Slots)
	}
	if s.Latency != 0 {
		fmt.Fprintf(&b, ", %v each way", s.Latency)
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

// Ends returns when the last fault ends and the last task has started.
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

// longest returns the greatest ttl.
func (s *Schedule) longest() time.Duration {
	ttl := time.Second
	for _, t := range s.Tasks {
		ttl = max(ttl, t.TTL)
	}
	return ttl
}

// strikes reports whether the schedule has a fault of one of these kinds.
func (s *Schedule) strikes(kinds ...Strike) bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return slices.Contains(kinds, f.Do) })
}

// bare reports whether a task of a schedule with Unfenced wants locks without a fence.
func (s *Schedule) bare(t Task) bool { return t.Bare || t.Key == s.Keys-1 }

func (s *Schedule) prompt() bool       { return len(s.FaultyNodes) > 0 }
func (s *Schedule) healthy(n int) bool { return !slices.Contains(s.FaultyNodes, n) }
func (s *Schedule) rate(n int) float64 {
	if n < len(s.Rates) && s.Rates[n] > 0 {
		return s.Rates[n]
	}
	return 1
}

func nodeName(i int) string { return string(rune('a' + i)) }

// keyName returns the name of a key. The slots come last.
func (s *Schedule) keyName(i int) string {
	if first := s.Keys - s.Slots; s.Slots > 0 && i >= first {
		return fmt.Sprintf("%s#%d", slotsName, i-first)
	}
	return fmt.Sprintf("k%d", i)
}

// slotsName is the key of the slots.
const slotsName = "ks"

// slotKeys returns the keys that are slots.
func (s *Schedule) slotKeys() (keys []int) {
	for i := s.Keys - s.Slots; i < s.Keys; i++ {
		keys = append(keys, i)
	}
	return keys
}

// registerName returns the name of a key's fence register, as in docs/design/algorithm.md.
func (s *Schedule) registerName(i int) string { return "{" + s.keyName(i) + "}:fence" }

// queueName returns the name of a key's queue.
func (s *Schedule) queueName(i int) string {
	return "{" + s.keyName(i) + "}:queue"
}
