package lane

import (
	"io"
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// What each question leaves on a node, by its reply. No reply clears a bit, and Late comes
// only with Holds.
func TestResidue(t *testing.T) {
	yes, no := wire.Reply{Answer: wire.Yes, Sent: true}, wire.Reply{Answer: wire.No, Sent: true}
	stored, unsent := wire.Reply{Answer: wire.Yes, Sent: true, Stored: true}, wire.Reply{Answer: wire.Unknown, Err: wire.ErrNotAsked}
	fault := wire.NewNodeError("EOF", io.EOF)
	lost := wire.Reply{Answer: wire.Unknown, Sent: true, Silent: true, Err: fault}
	mayStore, proxy := lost, lost
	mayStore.Stored, proxy.Stored, proxy.Silent = true, true, false
	plain, script := new(wire.Question), new(wire.Question)
	name, err := wire.NameKey("", "jobs/42")
	if err != nil {
		t.Fatal(err)
	}
	*plain = wire.AcquireQuestion(nil, name, "mine", 0, 1)
	*script = wire.AcquireQuestion(new(wire.Guard), name, "mine", 0, 1)
	kind := func(k wire.Kind) *wire.Question { return &wire.Question{Kind: k} }
	fenced := func(k wire.Kind) *wire.Question { return &wire.Question{Kind: k, Token: 1} }
	for _, c := range []struct {
		name string
		q    *wire.Question
		rep  wire.Reply
		want Residue
	}{
		{"an acquire that was granted", plain, stored, Holds | Raised},
		{"an acquire that met another's value", plain, no, Raised},
		{"an acquire without an answer", plain, mayStore, Holds | Late | Raised},
		{"an acquire that a proxy reports as failed", plain, proxy, Holds | Raised},
		{"an acquire that was never sent", plain, unsent, 0},
		{"a guarded acquire that was granted", script, stored, Holds | Raised},
		{"a guarded acquire that met another's value", script, no, 0},
		{"a guarded acquire without an answer", script, mayStore, Holds | Late | Raised},
		{"a turn that was granted", fenced(wire.AskTurn), stored, Holds | Raised},
		{"a turn that came too early", fenced(wire.AskTurn), no, 0},
		{"a turn without an answer", fenced(wire.AskTurn), mayStore, Holds | Late | Raised},
		{"an adoption", fenced(wire.AskAdopt), stored, Holds | Raised},
		{"an adoption that was refused", fenced(wire.AskAdopt), no, Raised},
		{"an adoption without an answer", fenced(wire.AskAdopt), mayStore, Holds | Late | Raised},
		{"an adoption that was never sent", fenced(wire.AskAdopt), unsent, 0},
		{"an acquire without a fence", kind(wire.AskAcquire), stored, Holds},
		{"an acquire without a fence that met another's value", kind(wire.AskAcquire), no, 0},
		{"an acquire without a fence and without an answer", kind(wire.AskAcquire), mayStore, Holds | Late},
		{"a turn without a fence", kind(wire.AskTurn), stored, Holds},
		{"an adoption without a fence", kind(wire.AskAdopt), stored, Holds},
		{"an adoption without a fence and without an answer", kind(wire.AskAdopt), mayStore, Holds | Late},
		{"a heal", kind(wire.AskHeal), stored, Holds},
		{"a heal that met a value", kind(wire.AskHeal), no, 0},
		{"a heal without an answer", kind(wire.AskHeal), mayStore, Holds | Late},
		{"an extension", kind(wire.AskExtend), yes, Holds},
		{"an extension that met nothing", kind(wire.AskExtend), no, 0},
		{"an extension without an answer", kind(wire.AskExtend), lost, 0},
		{"a raise", kind(wire.AskRaise), yes, 0},
		{"a raise without an answer", kind(wire.AskRaise), lost, 0},
		{"a release", kind(wire.AskRelease), yes, 0},
		{"a rollback without an answer", kind(wire.AskRollback), lost, 0},
		{"a restore", kind(wire.AskRestore), yes, 0},
	} {
		for before := range Residue(1 << numResidues) {
			if got := before.Settle(c.q, &c.rep); got != before|c.want {
				t.Errorf("%s, after %03b: got %03b, want %03b", c.name, before, got, before|c.want)
			}
		}
		if c.want.Has(Late) && !c.want.Has(Holds) {
			t.Errorf("%s: late but not held", c.name)
		}
	}
}

// Residues keep the Residue of each node apart.
func TestResidues(t *testing.T) {
	var s, more Residues
	s.Add(1<<0|1<<63, Holds|Raised)
	more.Add(1<<63, Late)
	more.Add(1<<7, Raised)
	s.Join(more)
	for i := range 64 {
		want := map[int]Residue{0: Holds | Raised, 7: Raised, 63: Holds | Late | Raised}[i]
		if got := s.On(i); got != want {
			t.Errorf("on node %d: got %03b, want %03b", i, got, want)
		}
	}
	for _, c := range []struct {
		of   Residue
		want Nodes
	}{
		{0, 0},
		{Holds, 1<<0 | 1<<63},
		{Late, 1 << 63},
		{Raised, 1<<0 | 1<<7 | 1<<63},
		{Holds | Late, 1<<0 | 1<<63},
		{Holds | Raised, 1<<0 | 1<<7 | 1<<63},
	} {
		if got := s.Any(c.of); got != c.want {
			t.Errorf("nodes with any of %03b: got %b, want %b", c.of, got, c.want)
		}
	}
}

// A call takes over what lies on the node only from a call about the same value, but for the command that gives the register a
// ttl, which has no value. For a failed attempt that one is sent only where the attempt, or one before it, has reached the
// register, and no rollback does the same.
func TestInherit(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, before Residue
		sent, attempt bool
		kind          wire.Kind
		value         string
		want          Residue
		work          bool
	}{
		{name: "a rollback of the value", before: Holds | Late, sent: true, kind: wire.AskRollback, value: "a", want: Holds | Late, work: true},
		{name: "a rollback of another value", before: Holds | Late, sent: true, kind: wire.AskRollback, value: "b"},
		{name: "a rollback where only the register was raised", before: Raised, sent: true, kind: wire.AskRollback, value: "a", want: Raised},
		{name: "an extension keeps what was known", first: Holds, before: Raised, sent: true, kind: wire.AskExtend, value: "a", want: Holds | Raised, work: true},
		{name: "a ttl after an attempt that was rolled back", first: Raised, before: Holds | Raised, sent: true, attempt: true, kind: wire.AskExpireRegister},
		{name: "a ttl after an attempt that was refused", before: Raised, sent: true, attempt: true, kind: wire.AskExpireRegister, want: Raised, work: true},
		{name: "a ttl after an attempt that was not sent", attempt: true, kind: wire.AskExpireRegister},
		{name: "a ttl after two attempts of which the last was not sent", first: Raised, attempt: true, kind: wire.AskExpireRegister, want: Raised, work: true},
		{name: "a ttl for a lock that is held", first: Raised, before: Holds, sent: true, kind: wire.AskExpireRegister, want: Holds | Raised, work: true},
		{name: "a ttl for a lock that may be stored late", first: Raised, before: Holds | Late, sent: true, kind: wire.AskExpireRegister, want: Holds | Late | Raised, work: true},
		{name: "a ttl after an attempt that may be executed late, which was rolled back", first: Raised, before: Holds | Late, sent: true, attempt: true, kind: wire.AskExpireRegister},
	} {
		before := &Call{Question: &wire.Question{Value: "a"}, Residue: c.before, Reply: wire.Reply{Sent: c.sent}}
		call := &Call{Question: &wire.Question{Kind: c.kind, Value: c.value}, Residue: c.first, AfterAttempt: c.attempt}
		call.inherit(before)
		if call.Residue != c.want || call.hasWork() != c.work {
			t.Errorf("%s: got %03b, with work: %v; want %03b, %v", c.name, call.Residue, call.hasWork(), c.want, c.work)
		}
	}
}
