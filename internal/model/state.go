package model

// This file defines a state and its stored form: words that are compared in full, so no state is
// ever mistaken for another because of its hash.

const (
	nodes       = 3
	maxAttempts = 3
	maxRounds   = 2 // extensions of one lock
	maxRaises   = 2
	maxFence    = 7 // three bits
)

// A phase is the progress of an attempt, as its client knows it.
type phase uint8

const (
	idle      phase = iota
	acquiring       // SET and ZADD are on their way
	raising         // a majority stores our value, but the token is not agreed on
	holding         // the lock was returned; in a world with clocks, it is also within Until
	failed          // no lock was returned, nor ever will be
	ended           // a lock was returned, and the claim has ended
)

// The result of an acquire on one node. It consists of two commands, hence two steps.
const (
	notDone uint8 = iota // for every command: it may still be executed
	setNo                // SET NX found another value; ZADD is still to come
	setYes               // SET NX stored our value; ZADD is still to come
	answerNo
	answerNoMoved // not our value, but ZADD moved the register
	answerYes     // our value, but the register was not below the proposal
	answerFenced  // our value, and the register moved from below the proposal to it
)

// The result of a raise on one node.
const (
	raiseCounted   = 1
	raiseUncounted = 2
)

// The result of an extension on one node.
const (
	extYes      uint8 = iota + 1
	extNo             // another value
	extMissing        // no value
	extHealSent       // missing, and a SET NX is on its way there
	extSettled        // the result no longer matters
	extHealed         // the SET NX stored the value
)

// A node is the state of one server for one key.
type node struct {
	val     uint8 // the attempt whose value is stored, plus one; or 0
	reg     uint8 // the fence register
	era     uint8 // the round from which the key's ttl counts: 0 for the acquire, then the extensions
	under   uint8 // if an adoption replaced the value: the era that it had
	out     bool  // has lost its memory, and stays away
	crashed bool  // has lost its memory once already
	carries bool  // said yes to the first attempt, and has not crashed since
	health  health
	mend    uint8 // of an ill register: what the operator will set it to, plus one; 0: not read yet
	stood   bool  // counted for F2 when the last attempt began, and has not crashed since
	floor   [maxAttempts]uint8
}

// health says whether a register has a number that nobody proposed. It falls ill at most once.
type health uint8

const (
	well health = iota
	ill
	mended
)

// An attempt is one acquisition (or adoption) and the lock that it becomes.
type attempt struct {
	phase     phase
	p         uint8            // the proposal; 0: none
	t         [maxRaises]uint8 // the tokens of the raises; 0: not sent
	tok       uint8            // the token that was returned; 0: none
	before    uint8            // the attempts that had returned before this one began, as bits
	round     uint8            // number of extensions begun
	claim     uint8            // the round from which Until counts
	past      uint8            // number of rounds whose validity has expired
	overtaken bool             // another attempt has returned a lock since this one did
	acq       [nodes]uint8
	raise     [maxRaises][nodes]uint8
	ext       [maxRounds][nodes]uint8
}

func (a *attempt) live() bool     { return a.phase >= acquiring && a.phase <= holding }
func (a *attempt) returned() bool { return a.phase == holding || a.phase == ended }

type state struct {
	node    [nodes]node
	attempt [maxAttempts]attempt
}

// A key is a state in bits: one word per node with everything that concerns this node, and half a
// word per attempt. Swapping two nodes swaps two words.
type key struct {
	node    [nodes]uint64
	attempt [maxAttempts]uint32
}

// A packer packs small numbers side by side.
type packer struct {
	bits uint64
	at   uint
}

func (p *packer) put(v uint8, width uint) {
	p.bits |= uint64(v) << p.at
	p.at += width
}

func (p *packer) get(width uint) uint8 {
	v := uint8(p.bits & (1<<width - 1))
	p.bits >>= width
	return v
}

func (p *packer) putBool(b bool) {
	if b {
		p.put(1, 1)
	} else {
		p.put(0, 1)
	}
}

func (p *packer) getBool() bool { return p.get(1) == 1 }

// pack returns the key of the state, which does not depend on the numbering of the nodes: the
// protocol treats all nodes alike and only counts them, so states that differ only in the numbering
// have the same future.
func (w *World) pack(s *state) key {
	k := s.key(len(w.Roles))
	if w.raw {
		return k
	}
	c := &k.node
	if c[0] > c[1] {
		c[0], c[1] = c[1], c[0]
	}
	if c[1] > c[2] {
		c[1], c[2] = c[2], c[1]
	}
	if c[0] > c[1] {
		c[0], c[1] = c[1], c[0]
	}
	return k
}

// key packs the first n attempts; the others never begin.
func (s *state) key(n int) (k key) {
	for j := range s.node {
		k.node[j] = s.column(j, n)
	}
	for i := range n {
		a, p := &s.attempt[i], packer{}
		p.put(uint8(a.phase), 3)
		p.put(a.p, 3)
		p.put(a.t[0], 3)
		p.put(a.t[1], 3)
		p.put(a.tok, 3)
		p.put(a.before, 3)
		p.put(a.round, 2)
		p.put(a.claim, 2)
		p.put(a.past, 2)
		p.putBool(a.overtaken)
		k.attempt[i] = uint32(p.bits)
	}
	return k
}

func (s *state) column(j, attempts int) uint64 {
	n, p := &s.node[j], packer{}
	p.put(n.val, 2)
	p.put(n.reg, 3)
	p.put(n.era, 2)
	p.put(n.under, 2)
	p.putBool(n.out)
	p.putBool(n.crashed)
	p.putBool(n.carries)
	p.putBool(n.stood)
	p.put(uint8(n.health), 2)
	p.put(n.mend, 3)
	for i := range attempts {
		a := &s.attempt[i]
		p.put(n.floor[i], 2)
		p.put(a.acq[j], 3)
		p.put(a.raise[0][j], 2)
		p.put(a.raise[1][j], 2)
		p.put(a.ext[0][j], 3)
		p.put(a.ext[1][j], 3)
	}
	return p.bits // 63 bits
}

func (k key) unpack() (s state) {
	for j := range s.node {
		n, p := &s.node[j], packer{bits: k.node[j]}
		n.val, n.reg, n.era, n.under = p.get(2), p.get(3), p.get(2), p.get(2)
		n.out, n.crashed, n.carries, n.stood = p.getBool(), p.getBool(), p.getBool(), p.getBool()
		n.health, n.mend = health(p.get(2)), p.get(3)
		for i := range s.attempt {
			a := &s.attempt[i]
			n.floor[i], a.acq[j] = p.get(2), p.get(3)
			a.raise[0][j], a.raise[1][j] = p.get(2), p.get(2)
			a.ext[0][j], a.ext[1][j] = p.get(3), p.get(3)
		}
	}
	for i := range s.attempt {
		a, p := &s.attempt[i], packer{bits: uint64(k.attempt[i])}
		a.phase, a.p = phase(p.get(3)), p.get(3)
		a.t[0], a.t[1], a.tok, a.before = p.get(3), p.get(3), p.get(3), p.get(3)
		a.round, a.claim, a.past, a.overtaken = p.get(2), p.get(2), p.get(2), p.getBool()
	}
	return s
}
