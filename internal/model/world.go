// Package model is an explicit-state model of the protocol in docs/design/algorithm.md. It visits all states
// of a few attempts on three nodes, with messages that are delayed, lost or reordered and nodes that
// lose their memory, and checks exclusion and fencing. It also shows why each rule is needed, by
// removing the rule and finding a counterexample. docs/design/verification.md describes what is modelled, what is
// not, and the results.
//
// It shares no code with the library: an error that both had in common would not be found.
package model

import "strings"

// A World says who does what under which assumptions, and what is checked.
type World struct {
	Name    string
	Doc     string
	Roles   []Role
	Clocks  bool      // a claim ends before a key of its majority may expire
	Fences  uint8     // the greatest number; proposals and tokens are any numbers up to it
	Regs    uint8     // registers start at any numbers up to this
	Truth   bool      // clocks are right: every attempt proposes more than all before it
	Crashes int       // how many nodes lose their memory, each once
	Crash   CrashRule // when they may lose it
	Away    bool      // such a node stays away until everything it had granted has expired
	Ill     bool      // somebody writes a number above all others into one register, which may be mended once
	Asks    AskRule   // for which tokens F2 is required where registers are lost
	Again   bool      // acquires may be executed any number of times
	Early   bool      // a value may be adopted before its lock was returned
	Checks  Check
	Broken  Variant
	Finds   Check // what must be found broken; 0: nothing
	Long    bool  // not part of the short run

	raw bool // without the reductions of settle and pack, to test these
}

// A Role is what one attempt may do. Attempts of the same role are interchangeable until they begin,
// so they begin in order.
type Role struct {
	Raises  uint8 // maximum number of rounds that raise the token
	Extends uint8 // maximum number of extensions
	Adopts  int   // the attempt whose value is adopted, counted from 1; 0: it acquires
	Bare    bool  // it wants no fence: it proposes no token, and leaves the registers alone
}

// A Check is a set of properties.
type Check uint8

const (
	I1 Check = 1 << iota // two attempts are never within their claims at the same time
	F1                   // no token is returned twice
	F2                   // an attempt that begins after another has returned gets a greater token
	F3                   // the order of claims is the order of tokens
	V                    // a returned lock is within its validity
	H                    // between its acquisition and an extension, nobody else held the lock
)

var checkNames = []string{"I1", "F1", "F2", "F3", "V", "H"}

func (c Check) String() string {
	s := ""
	for i, name := range checkNames {
		if c>>i&1 != 0 {
			s += " " + name
		}
	}
	return strings.TrimPrefix(s, " ")
}

// A CrashRule says when the nodes of a world may lose their memory.
type CrashRule uint8

const (
	// CrashAny: any node, at any moment.
	CrashAny CrashRule = iota
	// CrashEarly: only nodes that store the first lock, once no command of its acquire is on its way
	// any more, and before its first extension begins.
	CrashEarly
	// CrashHeld: the same, but commands of the acquire may still be on their way.
	CrashHeld
	// CrashMajorityStays is the condition of I1: no node that said yes to a round in progress, and no
	// node without which no majority stores the lock.
	CrashMajorityStays
)

// An AskRule says for which earlier tokens F2 is required. When registers are lost, the promise is lost
// with them; I2 says where it still holds.
type AskRule uint8

const (
	// AskAlways: for all tokens that were returned before.
	AskAlways AskRule = iota
	// AskAnyMajority: while at every moment some majority has registers of at least that token.
	AskAnyMajority
	// AskSameMajority: if a majority has such registers when the attempt begins, and none of these nodes
	// loses its memory before the attempt returns.
	AskSameMajority
	// AskCarriers: the same, but for a majority of nodes that said yes to the first attempt, or to an
	// extension of it, since they last lost their memory, whatever their registers are.
	AskCarriers
)

// A Variant is a protocol without one of its rules.
type Variant uint8

const (
	Sound            Variant = iota
	EqualCounts              // a register that already equals the token counts
	RaiseAnywhere            // the raise does not check the owner
	CountApart               // value and register may be counted on different nodes
	NoMeasure                // the validity is not checked after the raise
	HalfQuorum               // N/2 is a quorum
	BlindRelease             // the release deletes any value
	BlindExtend              // the extension counts any value
	HealAlone                // heals without the majority of the round
	HealCountsAtOnce         // a healed node counts in the round that healed it
	RegisterShrinks          // ZADD without GT
	RegisterDies             // the register is removed with the lock
	NoRaise                  // a majority of values is enough, the proposal is the token
	LateExtension            // an extension counts even after the old Until
	ShorterTTL               // a late extension shortens the ttl
	ExtendKeepsFence         // the extension does not restore the register
	BlindAdopt               // the adoption replaces any value
	AdoptDeletes             // a failed adoption deletes the key instead of restoring it
	IllCounts                // an ill register counts, although it did not move
	MendByFew                // an ill register is mended by the registers of fewer than a majority
	MendAtOnce               // it is mended while an attempt that moved it before may still count it
	Unregistered             // an attempt that leaves the registers alone returns a token
	variants
)

var variantNames = [variants]string{
	"sound", "equal-counts", "raise-anywhere", "count-apart", "no-measure", "half-quorum", "blind-release",
	"blind-extend", "heal-alone", "heal-counts-at-once", "register-shrinks", "register-dies", "no-raise",
	"late-extension", "shorter-ttl", "extend-keeps-fence", "blind-adopt", "adopt-deletes",
	"ill-counts", "mend-by-few", "mend-at-once", "unregistered",
}

func (v Variant) String() string { return variantNames[v] }

// quorum returns a majority of three.
func (w *World) quorum() int {
	if w.Broken == HalfQuorum {
		return nodes / 2
	}
	return nodes/2 + 1
}

// initial emits all initial states, up to the numbering of the nodes.
func (w *World) initial(emit func(state)) {
	for i := range w.Regs + 1 {
		for j := i; j <= w.Regs; j++ {
			for k := j; k <= w.Regs; k++ {
				var s state
				s.node[0].reg, s.node[1].reg, s.node[2].reg = i, j, k
				emit(s)
			}
		}
	}
}

func (s *state) count(f func(j int) bool) (n int) {
	for j := range nodes {
		if f(j) {
			n++
		}
	}
	return n
}

// A Step is one event, with everything that was chosen in it.
type Step struct {
	Kind    Kind
	Attempt int8 // -1: no attempt
	Node    int8 // -1: no node
	Arg     uint8
}

// A Kind is the kind of a Step.
type Kind uint8

const (
	Begin       Kind = iota // Arg: the proposal
	SetNX                   // on the node
	ZAdd                    // on the node
	AdoptNode               // on the node
	Fenced                  // the client counts a majority with the token
	SendRaise               // Arg: the token
	RaiseNode               // on the node; Arg: which raise
	Raised                  // the client counts a majority that was raised
	GiveUp                  // the client gives up, possibly because its validity has expired
	SendExtend              // the client begins a round
	ExtendNode              // on the node; Arg: which round
	Extended                // the client counts a majority of nodes with its value
	SendHeal                // to the node; Arg: which round
	HealNode                // on the node; Arg: which round
	SetAgain                // SET NX is executed again on the node and finds no key
	ZAddAgain               // ZADD is executed again on the node and moves the register
	Pass                    // the validity of the attempt's oldest round expires
	End                     // the claim ends: released, lost, or past Until
	Remove                  // the key is removed: expired, released or rolled back
	Restore                 // a failed adoption restores the old value
	DeleteBlind             // a release deletes another attempt's key
	Crash                   // the node loses its memory
	Return                  // the node is back
	GoIll                   // somebody writes a number above all others into the node's register
	ReadOthers              // an operator reads the registers of the other nodes
	Mend                    // the operator's script sets the node's register to the greatest of these
)
