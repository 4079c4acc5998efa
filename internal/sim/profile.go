package sim

import "time"

// A Profile is a kind of environment and a kind of traffic, from which schedules are drawn. Uniformly random schedules find
// little: each profile exercises the rules that its traffic depends on.
type Profile struct {
	Name       string
	About      string
	Nodes      []int
	Clients    [2]int // minimum, maximum
	Keys       int
	Length     time.Duration
	TTL        [2]time.Duration
	Latency    [2]time.Duration // latency in each direction
	Skew       time.Duration    // maximum error of the clients' wall clocks, ahead or behind
	Grace      time.Duration    // Options.Grace of all clients
	Timeout    float64          // Options.NodeTimeout as a fraction of the shortest ttl; 0: the default
	Rates      [2]float64       // of the nodes' clocks
	Every      time.Duration    // average time between two tasks
	Tasks      []weighted[Behaviour]
	FaultEvery time.Duration
	FaultFor   [2]time.Duration
	Faults     []weighted[Strike]
	Job        time.Duration // maximum duration of a short job; 0: half a ttl
	Crowd      int           // tasks come in groups of up to this many, even in long runs
	MinClaims  int           // minimum number of acquisitions for a run to be meaningful

	Unsafe      bool
	Minority    bool          // faults strike only a minority, and I5 is judged
	Subscribers bool          // clients subscribe to releases
	Fair        bool          // Options.Fair of all clients
	Mixed       bool          // Options.Fair of some clients; the order is not judged
	Unfenced    bool          // half of the tasks want locks without a fence, and all of those for the last key
	Ahead       time.Duration // maximum error of the nodes' clocks, ahead or behind
	Untimed     bool          // several goroutines act at one instant, and the scheduler orders them: not deterministic
	Lasting     bool          // some ttls are long
	Guard       bool          // Options.RestartGuard is the longest ttl, and I1 is judged whatever data nodes lose
	Away        bool          // a node that lost its data stays away for the longest ttl plus a second
	Edges       bool          // half of the clients have callbacks that panic, some have nodes of a foreign type
	Alone       int           // number of keys that are not acquired at the end
	Slots       int           // up to this many keys more, which are the slots of one key
	Several     bool          // tasks want several keys, or slots, and a crowd of them comes at the end
	Storm       time.Duration // how long faults strike in each period; 0: the default
}

type weighted[T any] struct {
	w int
	v T
}

const (
	ms = time.Millisecond
	s  = time.Second
)

var short = []weighted[Behaviour]{{4, Try}, {3, Acquire}, {2, Vulture}, {1, Last}, {1, Extend}, {1, Keep}, {1, Cancel}}
var waiting = []weighted[Behaviour]{{12, Acquire}, {2, Within}, {1, Keep}, {1, Extend}, {2, Cancel}, {3, Fickle}, {1, Last}, {1, Try}}
var network = []weighted[Strike]{{3, Slow}, {2, DropRequest}, {3, DropReply}, {2, LoseReply}, {2, Cut}, {2, CutRequests}, {2, CutReplies}, {2, CutLink}, {1, Refuse}, {2, Hang}}
var severalFaults = append([]weighted[Strike]{{3, Pause}, {2, Restart}, {2, Kill}, {2, Wall}, {2, NoPublish}, {2, ResetSubs}, {1, MuteSubs}, {1, Evict}, {1, Lose}}, network...)

// Profiles contains all profiles. I1 is promised in all but the last two.
var Profiles = []*Profile{
	{
		Name: "calm", About: "no faults, much contention",
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{2, 6}, Keys: 2, Length: 60 * s, TTL: [2]time.Duration{100 * ms, 4 * s},
		Every: 150 * ms, Tasks: append([]weighted[Behaviour]{{1, Inspect}, {1, Within}, {1, Leave}}, short...), MinClaims: 10,
	},
	{
		Name: "hear", About: "no faults, clients that subscribe to releases", Untimed: true, Subscribers: true,
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{2, 6}, Keys: 1, Length: 60 * s, TTL: [2]time.Duration{100 * ms, 2 * s},
		Every: 700 * ms, Crowd: 8, Tasks: waiting, Job: 100 * ms, MinClaims: 10,
	},
	{
		Name: "ears", About: "subscriptions are cut, half-open, slow or refused; announcements are lost", Untimed: true, Subscribers: true,
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{2, 6}, Keys: 1, Length: 80 * s, TTL: [2]time.Duration{100 * ms, 2 * s},
		Every: 1 * s, Crowd: 8, Tasks: waiting, FaultEvery: 500 * ms, FaultFor: [2]time.Duration{20 * ms, 3 * s}, Job: 200 * ms, MinClaims: 10,
		Faults: append([]weighted[Strike]{{5, ResetSubs}, {5, MuteSubs}, {5, SlowSubs}, {3, NoPublish}, {3, Kill}, {2, Vanish}, {2, EvictQueue}, {2, Restart}, {2, NoRegister}, {2, Unheard}}, network...),
	},
	{
		Name: "turns", About: "Fair, no faults except wrong clocks: order of arrival", Untimed: true, Subscribers: true, Fair: true,
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{3, 6}, Keys: 1, Length: 60 * s, TTL: [2]time.Duration{100 * ms, 2 * s}, Skew: 20 * s, Ahead: 20 * ms,
		Every: 700 * ms, Crowd: 8, Tasks: waiting, FaultEvery: 2 * s, FaultFor: [2]time.Duration{20 * ms, 3 * s}, Faults: []weighted[Strike]{{1, Wall}}, Job: 100 * ms, MinClaims: 10,
	},
	{
		Name: "fair", About: "Fair; clients and nodes die, lose data, hang and are cut off", Untimed: true, Subscribers: true, Fair: true,
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{3, 6}, Keys: 1, Length: 80 * s, TTL: [2]time.Duration{200 * ms, 2 * s}, Skew: 20 * s, Ahead: 20 * ms,
		Every: 1 * s, Crowd: 8, Tasks: waiting, FaultEvery: 600 * ms, FaultFor: [2]time.Duration{20 * ms, 3 * s}, Job: 200 * ms, MinClaims: 10,
		Faults: append([]weighted[Strike]{{4, Vanish}, {4, Kill}, {4, EvictQueue}, {2, Stop}, {2, Restart}, {2, Lose}, {2, Flush}, {1, Evict}, {2, Wall}, {2, Pause}, {2, ResetSubs}, {2, MuteSubs}, {2, SlowSubs}}, network...),
	},
	{
		Name: "crowd", About: "fair and other clients wait for one key; Lockers are closed, subscriptions and announcements are refused", Untimed: true, Subscribers: true, Mixed: true,
		Nodes: []int{3}, Clients: [2]int{3, 4}, Keys: 1, Length: 80 * s, TTL: [2]time.Duration{50 * ms, 1500 * ms},
		Every: 1 * s, Crowd: 8, Tasks: append([]weighted[Behaviour]{{2, Close}}, waiting...), FaultEvery: 500 * ms, FaultFor: [2]time.Duration{20 * ms, 3 * s}, Job: 200 * ms, MinClaims: 10,
		Faults: append([]weighted[Strike]{{4, NoSubscribe}, {4, NoPublish}, {3, Restart}, {2, Refuse}, {2, ResetSubs}}, network...),
	},
	{
		Name: "forged", About: "somebody tampers with the queues and announces releases that did not happen", Untimed: true, Subscribers: true, Mixed: true,
		Nodes: []int{3}, Clients: [2]int{3, 4}, Keys: 1, Length: 80 * s, TTL: [2]time.Duration{50 * ms, 1500 * ms},
		Every: 1 * s, Crowd: 8, Tasks: waiting, FaultEvery: 200 * ms, FaultFor: [2]time.Duration{0, 5 * s}, Faults: []weighted[Strike]{{5, Forge}, {1, EvictQueue}}, Job: 200 * ms, MinClaims: 10,
	},
	{
		Name: "leaders", About: "leaders that resign, lose their lock or are closed, and others that watch; announcements are lost", Untimed: true, Subscribers: true,
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{2, 5}, Keys: 1, Length: 80 * s, TTL: [2]time.Duration{200 * ms, 2 * s},
		Every: 1 * s, Crowd: 5, Tasks: []weighted[Behaviour]{{8, Lead}, {4, Watch}, {1, Acquire}, {1, Keep}, {1, Close}}, FaultEvery: 600 * ms, FaultFor: [2]time.Duration{20 * ms, 3 * s}, MinClaims: 10,
		Faults: append([]weighted[Strike]{{3, ResetSubs}, {3, MuteSubs}, {3, NoPublish}, {2, Pause}, {2, Restart}, {1, Evict}}, network...),
	},
	{
		Name: "unfenced", About: "callers with and without a fence want the same keys, in one Locker and in several; nobody ever asks for one of the last key", Untimed: true, Subscribers: true, Unfenced: true, Mixed: true, Lasting: true,
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{2, 5}, Keys: 2, Length: 80 * s, TTL: [2]time.Duration{300 * ms, 2 * s}, Skew: 3 * s, Rates: [2]float64{0.98, 1.0099},
		Every: 600 * ms, Crowd: 5, Tasks: append([]weighted[Behaviour]{{3, Adopt}, {3, Try}, {2, Leave}, {2, Lead}, {2, Keep}, {2, Vulture}, {1, Close}}, waiting...), Job: 100 * ms, MinClaims: 10,
		FaultEvery: 600 * ms, FaultFor: [2]time.Duration{20 * ms, 3 * s}, Faults: append([]weighted[Strike]{{3, Pause}, {3, Restart}, {2, Kill}, {2, NoPublish}, {2, ResetSubs}, {2, Wall}, {1, Evict}, {1, Lose}}, network...),
	},
	{
		Name: "several", About: "AcquireAll of overlapping keys in any order, beside nested and single acquisitions of the same keys", Untimed: true, Subscribers: true, Several: true, Mixed: true, Lasting: true,
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{2, 5}, Keys: 5, Length: 80 * s, TTL: [2]time.Duration{400 * ms, 2 * s}, Skew: 3 * s, Rates: [2]float64{0.98, 1.0099}, Storm: 12 * s,
		Every: 1 * s, Crowd: 5, Tasks: []weighted[Behaviour]{{8, All}, {3, KeepAll}, {3, WithinAll}, {3, TryAll}, {2, FickleAll}, {4, Nest}, {2, Try}, {2, Acquire}, {1, Vulture}, {1, Close}}, Job: 30 * ms, MinClaims: 10,
		FaultEvery: 500 * ms, FaultFor: [2]time.Duration{20 * ms, 2 * s}, Faults: severalFaults,
	},
	{
		Name: "slots", About: "AcquireSlot and RunSlot, beside acquisitions of single slots by their names", Untimed: true, Subscribers: true, Several: true, Mixed: true, Lasting: true,
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{2, 5}, Slots: 4, Length: 80 * s, TTL: [2]time.Duration{400 * ms, 2 * s}, Latency: [2]time.Duration{0, 3 * ms}, Skew: 3 * s, Rates: [2]float64{0.98, 1.0099}, Storm: 12 * s,
		Every: 1 * s, Crowd: 6, Tasks: []weighted[Behaviour]{{8, Slot}, {3, KeepSlot}, {3, WithinSlot}, {3, TrySlot}, {2, FickleSlot}, {1, Try}, {1, Acquire}, {1, Vulture}, {1, Close}}, Job: 60 * ms, MinClaims: 10,
		FaultEvery: 500 * ms, FaultFor: [2]time.Duration{20 * ms, 2 * s}, Faults: severalFaults,
	},
	{
		Name: "network", Lasting: true, About: "slow, lossy, cut and one-way links, hung nodes",
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{2, 4}, Keys: 2, Length: 120 * s, TTL: [2]time.Duration{100 * ms, 4 * s},
		Every: 300 * ms, Tasks: short, FaultEvery: 600 * ms, FaultFor: [2]time.Duration{20 * ms, 3 * s}, Faults: network, MinClaims: 10,
	},
	{
		Name: "crash", About: "restarts that keep data, outages, errors",
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{2, 4}, Keys: 2, Length: 120 * s, TTL: [2]time.Duration{200 * ms, 4 * s},
		Every: 300 * ms, Tasks: short, FaultEvery: 900 * ms, FaultFor: [2]time.Duration{20 * ms, 3 * s}, MinClaims: 10,
		Faults: []weighted[Strike]{{3, Stop}, {3, Restart}, {2, Hang}, {1, Loading}, {1, ReadOnly}, {1, OOM}, {1, Refuse}, {1, DropReply}},
	},
	{
		Name: "drift", About: "nodes' clocks are as fast as Drift allows, vultures come at Until",
		Nodes: []int{3, 5}, Clients: [2]int{3, 5}, Keys: 1, Length: 120 * s, TTL: [2]time.Duration{1 * s, 5 * s}, Rates: [2]float64{0.98, 1.0099},
		Every: 1500 * ms, Tasks: []weighted[Behaviour]{{3, Vulture}, {3, Last}, {1, Keep}, {1, Extend}, {1, Leave}},
		FaultEvery: 5 * s, FaultFor: [2]time.Duration{100 * ms, 1 * s}, Faults: []weighted[Strike]{{1, Slow}, {1, DropReply}}, MinClaims: 10,
	},
	{
		Name: "skew", About: "clients' wall clocks differ and are stepped, processes pause",
		Nodes: []int{3, 4, 5}, Clients: [2]int{3, 6}, Keys: 1, Length: 60 * s, TTL: [2]time.Duration{200 * ms, 2 * s}, Skew: 20 * s,
		Every: 150 * ms, Tasks: []weighted[Behaviour]{{4, Try}, {4, Acquire}, {2, Vulture}, {1, Extend}, {1, Keep}, {1, Cancel}},
		FaultEvery: 400 * ms, FaultFor: [2]time.Duration{10 * ms, 2500 * ms},
		Faults: []weighted[Strike]{{2, Wall}, {4, Pause}, {2, DropReply}, {1, CutLink}, {1, Slow}, {1, LoseReply}, {1, CutReplies}}, MinClaims: 10,
	},
	{
		Name: "extend", About: "locks held for long, under faults",
		Nodes: []int{3, 4, 5}, Clients: [2]int{2, 4}, Keys: 2, Length: 180 * s, TTL: [2]time.Duration{300 * ms, 3 * s},
		Every: 800 * ms, Tasks: []weighted[Behaviour]{{4, Extend}, {4, Keep}, {2, Within}, {3, Vulture}, {2, Try}},
		FaultEvery: 700 * ms, FaultFor: [2]time.Duration{50 * ms, 4 * s}, Faults: append([]weighted[Strike]{{2, Stop}, {2, Restart}}, network...), MinClaims: 10,
	},
	{
		Name: "grace", About: "contexts end some time before Until, and the work continues for most of that time",
		Nodes: []int{3, 4, 5}, Clients: [2]int{2, 4}, Keys: 1, Length: 120 * s, TTL: [2]time.Duration{600 * ms, 3 * s}, Grace: 190 * ms,
		Every: 800 * ms, Tasks: []weighted[Behaviour]{{5, Keep}, {3, Within}, {3, Vulture}, {3, Acquire}, {1, Extend}, {1, Adopt}},
		FaultEvery: 500 * ms, FaultFor: [2]time.Duration{200 * ms, 4 * s}, Faults: append([]weighted[Strike]{{3, Stop}, {1, Restart}, {3, Pause}}, network...), MinClaims: 10,
	},
	{
		Name: "slow", Lasting: true, About: "distant nodes and long timeouts: replies come when little of the validity is left",
		Nodes: []int{3, 5}, Clients: [2]int{2, 4}, Keys: 1, Length: 120 * s, TTL: [2]time.Duration{300 * ms, 1200 * ms}, Latency: [2]time.Duration{1 * ms, 60 * ms}, Timeout: 0.85, Skew: 2 * s,
		Every: 500 * ms, Tasks: []weighted[Behaviour]{{3, Try}, {3, Acquire}, {3, Vulture}, {3, Extend}, {2, Keep}, {1, Last}},
		FaultEvery: 300 * ms, FaultFor: [2]time.Duration{200 * ms, 2 * s}, Faults: []weighted[Strike]{{6, Slow}, {1, Pause}, {1, DropReply}}, MinClaims: 5,
	},
	{
		Name: "rolling", About: "nodes lose data, one at a time, while locks are held",
		Nodes: []int{3, 4, 5}, Clients: [2]int{2, 4}, Keys: 2, Length: 120 * s, TTL: [2]time.Duration{300 * ms, 3 * s},
		Every: 700 * ms, Tasks: []weighted[Behaviour]{{3, Keep}, {3, Extend}, {2, Vulture}, {3, Try}, {1, Last}, {1, Leave}},
		FaultEvery: 900 * ms, FaultFor: [2]time.Duration{0, 1 * s}, Faults: []weighted[Strike]{{3, Evict}, {1, EvictFence}, {2, Flush}, {2, Lose}, {1, Revert}, {1, Slow}}, MinClaims: 10,
	},
	{
		Name: "away", About: "nodes lose their data and stay away for the longest ttl",
		Nodes: []int{3, 5}, Clients: [2]int{2, 4}, Keys: 1, Length: 180 * s, TTL: [2]time.Duration{200 * ms, 2 * s}, Away: true,
		Every: 400 * ms, Tasks: short, FaultEvery: 3 * s, FaultFor: [2]time.Duration{20 * ms, 1 * s}, Faults: []weighted[Strike]{{3, Lose}, {1, DropReply}, {1, Hang}, {1, CutReplies}}, MinClaims: 10,
	},
	{
		Name: "guard", About: "any number of nodes lose data at any instant and are back at once: clients have a restart guard", Guard: true,
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{2, 4}, Keys: 1, Length: 180 * s, TTL: [2]time.Duration{200 * ms, 2 * s}, Rates: [2]float64{0.98, 1.0099},
		Every: 300 * ms, Tasks: append([]weighted[Behaviour]{{3, Vulture}, {3, Keep}, {2, Extend}, {1, Adopt}}, short...), FaultEvery: 3 * s, FaultFor: [2]time.Duration{0, 1 * s}, MinClaims: 10,
		Faults: []weighted[Strike]{{4, Lose}, {4, Revert}, {3, Flush}, {2, Restart}, {1, Stop}, {1, DropReply}, {1, CutReplies}, {1, Hang}, {1, Slow}, {1, OOM}, {4, Pause}},
	},
	{
		Name: "adopt", About: "hand-overs, including failed ones",
		Nodes: []int{3, 4, 5}, Clients: [2]int{2, 4}, Keys: 1, Length: 120 * s, TTL: [2]time.Duration{500 * ms, 3 * s}, Skew: 3 * s,
		Every: 300 * ms, Tasks: []weighted[Behaviour]{{4, Adopt}, {3, Acquire}, {2, Keep}, {2, Extend}, {1, Vulture}},
		FaultEvery: 1500 * ms, FaultFor: [2]time.Duration{20 * ms, 1 * s}, Faults: network, MinClaims: 10,
	},
	{
		Name: "edges", About: "several callers adopt at once, also in one Locker; callbacks and clients panic; permissions are missing; foreign values, also without a ttl", Edges: true, Lasting: true, Untimed: true,
		Nodes: []int{3, 4, 5}, Clients: [2]int{2, 4}, Keys: 3, Alone: 2, Length: 120 * s, TTL: [2]time.Duration{500 * ms, 4 * s}, Storm: 10 * s,
		Every: 150 * ms, Tasks: []weighted[Behaviour]{{6, Rush}, {2, Adopt}, {5, Try}, {3, Acquire}, {2, Extend}, {2, Keep}, {1, Leave}, {3, Cancel}, {1, Quit}, {1, Again}},
		FaultEvery: 300 * ms, FaultFor: [2]time.Duration{20 * ms, 2 * s}, MinClaims: 10,
		Faults: []weighted[Strike]{{6, Deny}, {5, Foreign}, {3, EvictFence}, {1, Flush}, {2, Throw}, {2, DropReply}, {1, LoseReply}, {1, Pause}, {1, Restart}, {1, Stop}},
	},
	{
		Name: "leavers", About: "waiters whose contexts end when the lock is handed to them, one after the other; Lockers are closed; callbacks panic", Edges: true, Lasting: true, Untimed: true, Subscribers: true,
		Nodes: []int{1, 3, 4, 5}, Clients: [2]int{1, 3}, Keys: 1, Length: 60 * s, TTL: [2]time.Duration{500 * ms, 2 * s}, Skew: 3 * s, Storm: 10 * s,
		Every: 500 * ms, Crowd: 8, Tasks: append([]weighted[Behaviour]{{16, Join}, {6, Fickle}, {2, Rush}, {1, Leave}, {1, Close}, {1, Quit}}, waiting...), Job: 60 * ms, MinClaims: 10,
		FaultEvery: 1 * s, FaultFor: [2]time.Duration{20 * ms, 1 * s}, Faults: []weighted[Strike]{{3, Throw}, {2, ResetSubs}, {2, NoPublish}, {1, DropReply}},
	},
	{
		// Less than the two seconds after which go-redis gives a connection up: what arrives later has no promise (operations.md).
		// So many keys that most are used once: a register that has a ttl keeps it.
		Name: "laggards", About: "nodes execute some commands up to two seconds late, long after they have timed out; locks are left, adopted and given up, of many keys",
		Nodes: []int{3, 4, 5}, Clients: [2]int{1, 3}, Keys: 80, Alone: 78, Length: 60 * s, TTL: [2]time.Duration{500 * ms, 2800 * ms}, Timeout: 0.1, Storm: 14 * s,
		Every: 300 * ms, Tasks: []weighted[Behaviour]{{10, Leave}, {3, Try}, {2, Acquire}, {1, Keep}, {1, Extend}, {2, Adopt}, {1, Last}, {3, Cancel}}, MinClaims: 10,
		FaultEvery: 300 * ms, FaultFor: [2]time.Duration{20 * ms, 250 * ms}, Faults: []weighted[Strike]{{8, Slow}, {1, DropReply}},
	},
	{
		Name: "life", Lasting: true, Untimed: true, // Close wakes all waiters at one instant
		About: "processes die, close and start again, calls are cancelled",
		Nodes: []int{1, 3, 5}, Clients: [2]int{4, 8}, Keys: 2, Length: 60 * s, TTL: [2]time.Duration{200 * ms, 2 * s},
		Every: 200 * ms, Tasks: []weighted[Behaviour]{{2, Die}, {4, Close}, {6, Cancel}, {4, Keep}, {2, Within}, {4, Acquire}, {4, Try}, {2, Extend}},
		FaultEvery: 1500 * ms, FaultFor: [2]time.Duration{20 * ms, 1 * s}, Faults: network, MinClaims: 10,
	},
	{
		Name: "minority", Lasting: true, About: "all faults strike a minority, which must not affect any caller",
		Nodes: []int{3, 4, 5}, Clients: [2]int{2, 4}, Keys: 4, Length: 120 * s, TTL: [2]time.Duration{2 * s, 8 * s}, Minority: true,
		Every: 300 * ms, Tasks: []weighted[Behaviour]{{5, Try}, {2, Extend}, {2, Keep}, {1, Leave}, {1, Last}},
		FaultEvery: 500 * ms, FaultFor: [2]time.Duration{50 * ms, 5 * s}, Faults: append([]weighted[Strike]{{2, Stop}, {1, Restart}, {1, Loading}, {1, ReadOnly}, {1, OOM}}, network...), MinClaims: 10,
	},
	{
		Name: "rejects", Lasting: true, About: "a minority, near or far, replies with errors of every class, for a while or for good, which must not affect any caller",
		Nodes: []int{3, 4, 5}, Clients: [2]int{2, 4}, Keys: 4, Length: 120 * s, TTL: [2]time.Duration{2 * s, 8 * s}, Minority: true, Subscribers: true, Untimed: true,
		Every: 300 * ms, Tasks: []weighted[Behaviour]{{4, Try}, {4, Acquire}, {2, Extend}, {2, Keep}, {1, Leave}, {1, Last}, {1, Cancel}},
		FaultEvery: 2500 * ms, FaultFor: [2]time.Duration{50 * ms, 20 * s}, Faults: []weighted[Strike]{{6, Reject}, {2, Slow}, {1, DropReply}, {1, ResetSubs}}, MinClaims: 10,
	},
	{
		Name: "wild-clocks", About: "nodes' clocks run at any rate and jump: I1 is not promised, I2 is", Unsafe: true,
		Nodes: []int{1, 3, 5}, Clients: [2]int{2, 5}, Keys: 1, Length: 120 * s, TTL: [2]time.Duration{200 * ms, 3 * s}, Skew: 5 * s, Rates: [2]float64{0.5, 2},
		Every: 300 * ms, Tasks: append([]weighted[Behaviour]{{2, Keep}, {2, Vulture}}, short...),
		FaultEvery: 800 * ms, FaultFor: [2]time.Duration{20 * ms, 2 * s}, Faults: []weighted[Strike]{{4, Jump}, {3, Rate}, {1, Wall}, {1, DropReply}, {1, Cut}, {1, Hang}, {1, Pause}}, MinClaims: 10,
	},
	{
		Name: "wild-data", About: "several nodes lose data at once and serve at once: the promises depend on what is left",
		Nodes: []int{1, 3, 5}, Clients: [2]int{2, 5}, Keys: 1, Length: 120 * s, TTL: [2]time.Duration{200 * ms, 3 * s}, Skew: 5 * s,
		Every: 300 * ms, Tasks: append([]weighted[Behaviour]{{2, Keep}, {2, Vulture}}, short...),
		FaultEvery: 800 * ms, FaultFor: [2]time.Duration{0, 1 * s}, Faults: []weighted[Strike]{{2, Lose}, {2, Revert}, {2, Flush}, {2, Evict}, {1, EvictFence}, {1, DropReply}, {1, Hang}}, MinClaims: 10,
	},
}

// thin returns the profile for long runs: less dense, so that there is more time for slow failures, such as those of pending
// clean-ups and of expiry.
func (p *Profile) thin() *Profile {
	const factor = 8
	q := *p
	q.Every *= factor
	q.FaultEvery *= factor
	q.Length *= factor
	return &q
}

// brief returns the profile for everyday runs: one storm and one calm.
func (p *Profile) brief() *Profile {
	q := *p
	q.Length, q.MinClaims = min(p.Length, stormPeriod), 1
	return &q
}

// ProfileNamed returns the profile with the given name, or nil if there is none.
func ProfileNamed(name string) *Profile {
	for _, p := range Profiles {
		if p.Name == name {
			return p
		}
	}
	return nil
}
