package lane

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

const (
	// registerTTLEvery is how often failed attempts and releases give the registers of one key a ttl.
	// If each failed attempt did so, a contended key would cost twice as many commands; if each
	// release did, a cycle would cost a tenth more. A register lives for that much less, and one that
	// was made since has no ttl for that long.
	registerTTLEvery = time.Minute

	// maxRegisters bounds the keys that are remembered for that. For others every release and
	// every failed attempt gives its registers a ttl.
	maxRegisters = 4096
)

// Registers gives the fence registers a ttl that no release or rollback gives one: those of
// locks that may be left to expire, and those that failed attempts have raised. And it says which
// releases need not give one.
//
// It remembers for each key where releases and attempts gave the registers a ttl since the last
// renewal. Later ones do not do so there, but a node that was flushed in between has made new
// registers. So the renewal, once in registerTTLEvery, gives them a ttl again.
type Registers struct {
	lanes    []*Lane
	patience func(ttl time.Duration) wire.Patience

	// Guarded by mu, under which no mutex is taken but that of an Attempt.
	mu     sync.Mutex
	keys   map[string]*register // by full key
	timer  *time.Timer          // runs while keys is not empty
	closed bool
}

// A register is what is remembered of the registers of one key.
type register struct {
	name  *wire.LockKey
	given Nodes         // where a failed attempt has had one given a ttl since the last renewal, if there was one
	seen  Nodes         // where a release has seen it since, or the renewal has given it a ttl
	again Nodes         // of these, where they were raised since
	ttl   time.Duration // the longest of the locks and attempts that raised them
	after []Attempt     // those of these releases and failed attempts that were not finished
}

// An Attempt is a question to all nodes that other calls follow.
type Attempt interface {
	Finished() bool       // reports whether all its calls are finished
	LastCall(i int) *Call // returns the call that the next call to the i-th node has to follow, or nil
}

// NewRegisters returns the Registers of these nodes. patience returns how long the nodes may
// take to answer.
func NewRegisters(lanes []*Lane, patience func(ttl time.Duration) wire.Patience) *Registers {
	return &Registers{lanes: lanes, patience: patience, keys: make(map[string]*register)}
}

func (r *Registers) question(name *wire.LockKey, ttl time.Duration) *wire.Question {
	q := wire.ExpireRegisterQuestion(name, ttl)
	q.Patience = r.patience(ttl)
	return &q
}

// Expire gives the registers of a lock a ttl on the nodes where it may be, or may have raised its
// register, and where left says that it may yet do so. On each node the command follows
// the last call of prev. It is sent again if it is not answered, and as long as a command may
// still raise the register.
func (r *Registers) Expire(name *wire.LockKey, ttl time.Duration, nodes Nodes, left Residues, prev Attempt) {
	r.send(name, ttl, nodes, nodes, &left, false, prev)
}

// ExpireFailed makes sure that the registers that failed attempts have raised expire. They
// have raised them even where another holds the lock, possibly a foreign client that does
// not know about registers. last is the last of the attempts; raised has the nodes where one
// of them may have raised the register, and before those of the attempts before the last.
func (r *Registers) ExpireFailed(name *wire.LockKey, ttl time.Duration, raised, before Nodes, last Attempt) {
	r.mu.Lock()
	nodes := r.due(name, ttl, raised, last)
	r.mu.Unlock()
	r.send(name, ttl, nodes, before, new(Residues), true, last) // what may come late has a rollback
}

func (r *Registers) send(name *wire.LockKey, ttl time.Duration, nodes, raised Nodes, left *Residues, failed bool, prev Attempt) {
	q := r.question(name, ttl)
	for i, ln := range r.lanes {
		if nodes.Has(i) {
			c := &Call{Lane: ln, Question: q, Index: i, AfterAttempt: failed, Residue: left.On(i)}
			if raised.Has(i) {
				c.Residue |= Raised
			}
			ln.Ask(c, prev.LastCall(i))
		}
	}
}

// Releasing returns the nodes on which a release or a rollback need not look at the register: it
// has a ttl there, or the renewal gives it one, which on each node follows b, the release. If looked
// is not nil, it is to be called with each node that did look and has deleted the lock: mostly,
// where the lock was, the register is.
//
// Names that are used once would only take the place of others, so they are not remembered.
func (r *Registers) Releasing(name *wire.LockKey, ttl time.Duration, b Attempt) (known Nodes, looked func(i int)) {
	if !name.Fenced || !name.SharesLife(ttl) || !name.ReleasedBefore() {
		return 0, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.of(name)
	if g == nil || r.closed {
		return 0, nil
	}
	if g.seen != 1<<len(r.lanes)-1 {
		looked = func(i int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			g.seen |= 1 << i // of no use if g is forgotten by now
		}
	}
	if g.seen != 0 {
		g.left(g.seen, ttl, b)
	}
	return g.seen, looked
}

// left notes the nodes on which the renewal is to give the register a ttl, after a. It needs Registers.mu.
func (g *register) left(nodes Nodes, ttl time.Duration, a Attempt) {
	g.again |= nodes
	g.ttl = max(g.ttl, ttl)
	g.after = append(slices.DeleteFunc(g.after, Attempt.Finished), a)
}

// of returns what is remembered of the registers of a key, from now on, or nil. It needs r.mu.
func (r *Registers) of(name *wire.LockKey) *register {
	g := r.keys[name.Full]
	if g == nil && !r.closed && len(r.keys) < maxRegisters {
		g = &register{name: name}
		r.keys[name.Full] = g
		if len(r.keys) == 1 {
			r.restart()
		}
	}
	return g
}

// due returns the nodes on which registers that were raised need a ttl now; on the others the
// renewal gives them one. It needs r.mu.
func (r *Registers) due(name *wire.LockKey, ttl time.Duration, raised Nodes, last Attempt) (now Nodes) {
	g := r.of(name)
	if g == nil {
		return raised
	}
	now = raised &^ g.given
	g.given |= now
	if again := raised &^ now; again != 0 {
		g.left(again, ttl, last)
	}
	return now
}

// restart starts the time to the next renewal. It needs r.mu.
func (r *Registers) restart() {
	if r.timer == nil {
		r.timer = time.AfterFunc(registerTTLEvery, r.renew)
	} else {
		r.timer.Reset(registerTTLEvery)
	}
}

// Close makes the last renewal. What fails later gives its registers a ttl at once.
func (r *Registers) Close() {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.renew()
}

// renew gives registers a ttl again that were raised since they were given one.
func (r *Registers) renew() {
	r.mu.Lock()
	var due []*register
	for key, g := range r.keys {
		delete(r.keys, key)
		if g.again != 0 {
			due = append(due, g)
		}
	}
	if len(due) > 0 && !r.closed {
		for _, g := range due {
			r.keys[g.name.Full] = &register{name: g.name, given: g.again, seen: g.seen & g.again}
		}
		r.restart()
	}
	r.mu.Unlock()
	slices.SortFunc(due, func(a, b *register) int { return strings.Compare(a.name.Full, b.name.Full) }) // so that a simulation can be repeated
	questions := make([]*wire.Question, len(due))
	for n, g := range due {
		questions[n] = r.question(g.name, g.ttl)
	}
	for i, ln := range r.lanes {
		var calls []*Call
		var keys []*register
		for n, g := range due {
			if g.again.Has(i) {
				calls = append(calls, &Call{Lane: ln, Question: questions[n], Index: i, Residue: Raised, AfterAttempt: true})
				keys = append(keys, g)
			}
		}
		ln.AskAll(calls, func(n int) (prior []*Call) {
			for _, a := range keys[n].after {
				prior = append(prior, a.LastCall(i))
			}
			return prior
		})
	}
}
