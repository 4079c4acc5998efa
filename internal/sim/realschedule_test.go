package sim

import (
	"math/rand/v2"
	"time"
)

// The faults that only real servers have, in addition to those shared with the simulation.
const (
	realPauseWrite  Strike = "client-pause-write"
	realPauseAll    Strike = "client-pause-all"
	realKillNormal  Strike = "client-kill-normal"
	realKillPubSub  Strike = "client-kill-pubsub"
	realScriptFlush Strike = "script-flush"
	realReset       Strike = "reset" // resets all connections through the proxies
)

const (
	realNodes   = 5
	realDurable = 3 // this many servers write an append-only file; the others come back empty
	realKeys    = 12
	realFair    = 9 // from this key on, waiters queue fairly (Options.Fair)
	realClients = 4
	realMortal  = 3 // this client dies and is closed in the middle of the round
	realStorm   = 8 * time.Second

	// From realCalm on there are no faults for realPause: announcements are judged then, also those of clean-ups that faults have delayed.
	realCalm  = 3500 * time.Millisecond
	realPause = time.Second

	// realLong is the ttl of attempts whose leftovers would still be there when the nodes are checked: otherwise a missing
	// clean-up would remain unnoticed. It is not used for keys that are adopted: an adoption that fails after the giver has
	// released restores the giver's value, which remains for its ttl.
	realLong = time.Minute
)

// generateReal draws a round. On each node faults follow one another, so that sometimes one and sometimes several nodes are
// faulty; tasks begin at any time.
func generateReal(seed uint64) *Schedule {
	r := rand.New(rand.NewPCG(seed, 7))
	between := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(r.Int64N(int64(hi-lo)+1)) }
	s := &Schedule{Profile: "real", Seed: seed, Nodes: realNodes, Keys: realKeys, Subscribers: true, Unfenced: true, Clients: make([]Client, realClients)}
	for i := range s.Clients {
		if i%2 == 1 { // these clients are created by New, with a wall clock of their own
			s.Clients[i] = Client{Wall: between(-20*time.Second, 20*time.Second), NodeTimeout: between(100*time.Millisecond, 240*time.Millisecond)} // less than the shortest ttl and what it loses
		}
	}
	for node := range realNodes {
		for at := between(200*time.Millisecond, 2*time.Second); at < realStorm; {
			f := realFault(r, node)
			f.At = afterCalm(at, f.For)
			s.Faults = append(s.Faults, f)
			at = f.At + f.For + between(300*time.Millisecond, 2500*time.Millisecond)
		}
	}
	for at := between(0, 2*time.Second); at < realStorm; at += between(time.Second, 3*time.Second) {
		f := Fault{At: at, For: between(100*time.Millisecond, 1200*time.Millisecond), Client: r.IntN(realClients), Node: r.IntN(realNodes), Do: CutLink}
		f.At = afterCalm(at, f.For)
		far := 1
		if r.IntN(2) == 0 {
			far = realNodes/2 + 1 // this client then has no majority
		}
		for range far {
			s.Faults = append(s.Faults, f)
			f.Node = (f.Node + 1) % realNodes
		}
	}
	for at := time.Duration(0); at < realStorm; at += between(0, 50*time.Millisecond) {
		s.Tasks = append(s.Tasks, realTask(r, at))
	}
	return s
}

// afterCalm returns when a fault begins that would begin at a time: not in the calm, nor so late before that it would last into it.
func afterCalm(at, lasts time.Duration) time.Duration {
	if at < realCalm+realPause && at+lasts > realCalm {
		return realCalm + realPause
	}
	return at
}

func realFault(r *rand.Rand, node int) Fault {
	between := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(r.Int64N(int64(hi-lo)+1)) }
	kinds := []Strike{Hang, Hang, Hang, Stop, Stop, Restart, Flush, realPauseWrite, realPauseAll, realKillNormal, realKillPubSub, OOM,
		realScriptFlush, Slow, Slow, Slow, Cut, Cut, CutRequests, CutReplies, Refuse, DropRequest, DropReply, DropReply, LoseReply, realReset}
	f := Fault{Node: node, Do: kinds[r.IntN(len(kinds))]}
	if node >= realDurable && (f.Do == Stop || f.Do == Restart) {
		f.Do = Lose
	}
	switch f.Do {
	case Restart, Flush, realKillNormal, realKillPubSub, realScriptFlush, realReset:
		return f
	case Slow:
		f.By, f.Back = between(0, 60*time.Millisecond), between(0, 60*time.Millisecond)
	case DropRequest, DropReply, LoseReply:
		f.N = 1 + r.IntN(8)
	}
	f.For = between(50*time.Millisecond, 1200*time.Millisecond)
	return f
}

func realTask(r *rand.Rand, at time.Duration) Task {
	between := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(r.Int64N(int64(hi-lo)+1)) }
	kinds := []Behaviour{Try, Try, Try, Acquire, Acquire, Acquire, Extend, Keep, Keep, Within, Within, Last, Leave, Adopt, Vulture, Vulture, Cancel, Cancel, Inspect}
	t := Task{
		At: at, Client: r.IntN(realClients), Key: r.IntN(realKeys), Do: kinds[r.IntN(len(kinds))],
		TTL: between(300*time.Millisecond, 1500*time.Millisecond), Wait: between(200*time.Millisecond, 2*time.Second), Hold: between(0, 60*time.Millisecond),
	}
	if t.Client == realMortal {
		switch n := r.IntN(40); {
		case n == 0:
			t.Do = Die
		case n == 1:
			t.Do = Close
		}
	}
	if t.Do == Adopt { // see realLong; nor is it done with the last key, for which nobody asks for a fence
		t.Key &^= 1
	}
	t.Bare = r.IntN(3) == 0
	if short := t.Client == realMortal || t.Key%2 == 0; !short && r.IntN(2) == 0 {
		switch t.Do {
		case Try, Acquire, Within, Cancel:
			t.TTL = realLong
		}
	}
	switch t.Do {
	case Keep, Die, Within:
		t.Hold = between(50*time.Millisecond, time.Second)
	case Extend:
		t.Times, t.Hold = 1+r.IntN(4), between(10*time.Millisecond, t.TTL/3)
	case Last:
		t.TTL, t.Hold, t.Late = between(250*time.Millisecond, 500*time.Millisecond), between(2*time.Millisecond, 10*time.Millisecond), between(0, 100*time.Millisecond)
	case Leave:
		t.TTL = between(250*time.Millisecond, 400*time.Millisecond)
	case Vulture:
		t.Times, t.Late = 2+r.IntN(4), between(0, 3*time.Millisecond)
	case Cancel:
		t.Wait, t.Late = between(0, 20*time.Millisecond), between(0, 3*time.Millisecond)
		if r.IntN(2) == 0 {
			t.Wait = between(0, time.Millisecond)
		}
	}
	return t
}
