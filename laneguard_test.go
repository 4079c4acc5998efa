package redlock

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire/wiretest"
)

// A grant on a mark that nothing has compared is none: the batch's first was not
// executed. What it has stored is to be taken back.
func TestAGrantOnAMarkThatNothingComparedIsTakenBack(t *testing.T) {
	g := &guard{age: time.Minute - time.Microsecond, mark: "{redlock}:boot"}
	name, _ := nameKey("", "jobs/42")
	grant, plain := acquireQuestion(g, name, wiretest.Mine, time.Second, 7), extendQuestion(name, wiretest.Mine, time.Second, 7)
	yes, no := reply{answer: saidYes, stored: true, sent: true}, reply{answer: saidNo, sent: true}
	failed := func(text string) reply { return reply{answer: saidUnknown, sent: true, err: newNodeError(text, nil)} }
	for _, c := range []struct {
		name  string
		first reply
		taken bool
	}{
		{"granted", yes, false},
		{"held", no, false},
		{"a key of another type", failed("WRONGTYPE Operation against a key"), false},
		{"a register of another type", failed("FENCE WRONGTYPE Operation against a key"), false},
		{"a script that the node did not know", failed("NOSCRIPT No matching script"), true},
		{"no memory for the mark", failed("OOM command not allowed"), true},
		{"no answer", reply{answer: saidUnknown, sent: true, silent: true, err: newNodeError("EOF", io.EOF)}, true},
		{"an answer that no server gives", failed("unexpected reply int"), true},
	} {
		f := &flight{calls: []*call{{q: &plain}, {q: &grant}, {q: &plain}, {q: &grant}, {q: &grant}}}
		f.check(true)
		checks := ""
		for _, c := range f.calls {
			checks += fmt.Sprint(c.check, " ")
			f.lands = append(f.lands, landing{rep: yes})
		}
		if checks != "false true false false false " {
			t.Errorf("they compare: %s", checks)
		}
		f.lands[1].rep = c.first
		f.doubt()
		for _, i := range []int{3, 4} {
			rep := f.lands[i].rep
			if taken := rep.answer == saidUnknown && rep.stored && rep.sent && rep.err != nil; taken != c.taken || !taken && rep.answer != saidYes {
				t.Errorf("%s: the grant behind is %+v, want taken back %v", c.name, rep, c.taken)
			}
		}
		for _, i := range []int{0, 2} {
			if f.lands[i].rep.answer != saidYes {
				t.Errorf("%s: an extension was taken back", c.name)
			}
		}
	}
	f := &flight{calls: []*call{{q: &grant}, {q: &grant}}}
	f.check(false) // over who knows how many connections
	if !f.calls[0].check || !f.calls[1].check {
		t.Error("a batch that may be split compares only once")
	}
}
