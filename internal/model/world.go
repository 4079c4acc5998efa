// Package model is an explicit-state model of the protocol in docs/design/algorithm.md. It
// visits all states of a few attempts on three nodes, with messages that are delayed,
// lost or overtaken and nodes that forget, and checks exclusion and fencing; and it
// finds each rule's reason by taking the rule out. docs/design/verification.md says what is
// modelled, what is not, and what came out.
//
// It shares no code with the library: what both got wrong alike would not show.
package model

import "strings"

// A World is who does what, under which assumptions, and what is checked.
type World struct {
	Name    string
	Doc     string
	Roles   []Role
	Clocks  bool      // a claim ends before a key of its majority may expire
	Fences  uint8     // the greatest number; proposals and tokens are any below
	Regs    uint8     // registers begin at any numbers up to this
	Truth   bool      // clocks tell the truth: whoever begins proposes more than all before
	Crashes int       // how many nodes lose their memory, each once
	Crash   CrashRule // when they may
	Away    bool      // such a node stays away until what it had promised is over
	Asks    AskRule   // of which tokens F2 is asked where registers are lost
	Again   bool      // acquires may be executed any number of times
	Early   bool      // a value may be adopted before its lock was returned
	Checks  Check
	Broken  Variant
	Finds   Check // what must be found broken; 0: nothing
	Long    bool  // not part of the short run

	raw bool // for the test of what settle and pack leave out
}

// A Role is what one attempt may do. Attempts of one role are alike until they
// begin, so they begin in order.
type Role struct {
	Raises  uint8 // rounds that raise the token, at most
	Extends uint8 // extensions, at most
	Adopts  int   // attempt whose value is adopted, counted from 1; 0: it acquires
}

// A Check is a set of properties.
type Check uint8

const (
	I1 Check = 1 << iota // never two within their claims
	F1                   // no token twice
	F2                   // who began after another had returned has the greater token
	F3                   // the order of claims is the order of tokens
	V                    // what is returned is within its validity
	H                    // an extended lock was held by nobody else in between
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

// A CrashRule says which losses of memory a world has.
type CrashRule uint8

const (
	// CrashAny: any node, at any moment.
	CrashAny CrashRule = iota
	// CrashEarly: only nodes that carry the first lock, once nothing of its acquire is
	// on its way any more, and before its first extension begins.
	CrashEarly
	// CrashHeld: the same, with commands of the acquire still on their way.
	CrashHeld
	// CrashMajorityStays is the condition of I1: no node that said yes to a round
	// under way, and none without which no majority carries a lock.
	CrashMajorityStays
)

// An AskRule says of which earlier tokens F2 is asked. Registers that are lost take
// the promise with them; I2 says where it still holds.
type AskRule uint8

const (
	// AskAlways: of all that were returned before.
	AskAlways AskRule = iota
	// AskAnyMajority: while at every moment some majority has its register there.
	AskAnyMajority
	// AskSameMajority: if a majority has its register there when the attempt begins,
	// and none of it forgets before the attempt returns.
	AskSameMajority
	// AskCarriers: the same, but of nodes that said yes to the first attempt, or to an
	// extension of it, since they last forgot, whatever their registers are.
	AskCarriers
)

// A Variant is a protocol with one rule taken out.
type Variant uint8

const (
	Sound            Variant = iota
	EqualCounts              // a register that stands at the token already counts
	RaiseAnywhere            // the raise does not look at the owner
	CountApart               // value and register are counted on different nodes
	NoMeasure                // the validity is not measured after the raise
	HalfQuorum               // N/2 is a quorum
	BlindRelease             // the release deletes whatever is there
	BlindExtend              // the extension counts whatever is there
	HealAlone                // heals without the majority of the round
	HealCountsAtOnce         // a healed node counts in the round that healed it
	RegisterShrinks          // ZADD without GT
	RegisterDies             // the register goes with the lock
	NoRaise                  // a majority of values is enough, the proposal is the token
	LateExtension            // an extension counts after the old Until, too
	ShorterTTL               // an extension that comes late shortens the ttl
	ExtendKeepsFence         // the extension does not restore the register
	BlindAdopt               // the adoption replaces whatever is there
	AdoptDeletes             // a failed adoption deletes instead of restoring
	variants
)

var variantNames = [variants]string{
	"sound", "equal-counts", "raise-anywhere", "count-apart", "no-measure", "half-quorum", "blind-release",
	"blind-extend", "heal-alone", "heal-counts-at-once", "register-shrinks", "register-dies", "no-raise",
	"late-extension", "shorter-ttl", "extend-keeps-fence", "blind-adopt", "adopt-deletes",
}

func (v Variant) String() string { return variantNames[v] }

// quorum is a majority of three.
func (w *World) quorum() int {
	if w.Broken == HalfQuorum {
		return nodes / 2
	}
	return nodes/2 + 1
}

// initial is all beginnings, up to the numbering of the nodes.
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

// A Step is one thing that happens. It says all that was chosen.
type Step struct {
	Kind    Kind
	Attempt int8 // -1: nobody's
	Node    int8 // -1: on no node
	Arg     uint8
}

// A Kind is what a Step is.
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
	GiveUp                  // the client does; also: its validity is over
	SendExtend              // the client begins a round
	ExtendNode              // on the node; Arg: which round
	Extended                // the client counts a majority that said ours
	SendHeal                // to the node; Arg: which round
	HealNode                // on the node; Arg: which round
	SetAgain                // SET NX on the node once more: it finds no key
	ZAddAgain               // ZADD on the node once more, and it moves the register
	Pass                    // the validity of the attempt's oldest round is over
	End                     // the claim is over: released, lost, or past Until
	Remove                  // the key goes: expired, released or rolled back
	Restore                 // a failed adoption puts the old value back
	DeleteBlind             // a release deletes another's key
	Crash                   // the node loses its memory
	Return                  // it is back
)
