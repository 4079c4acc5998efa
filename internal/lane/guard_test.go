package lane

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"

	"github.com/seed-ce352c9b/redlock/internal/wire/wiretest"
)

// A grant that relies on a mark that nothing has compared does not count, because the first
// grant of the batch was not executed. What it has stored must be cleaned up.
func TestAGrantOnAMarkThatNothingComparedIsTakenBack(t *testing.T) {
	g := &wire.Guard{Age: time.Minute - time.Microsecond, Mark: "{redlock}:boot"}
	name, _ := wire.NameKey("", "jobs/42")
	grant, plain := wire.AcquireQuestion(g, name, wiretest.Mine, time.Second, 7), wire.ExtendQuestion(name, wiretest.Mine, time.Second, 7)
	yes, no := wire.Reply{Answer: wire.Yes, Stored: true, Sent: true}, wire.Reply{Answer: wire.No, Sent: true}
	failed := func(text string) wire.Reply {
		return wire.Reply{Answer: wire.Unknown, Sent: true, Err: wire.NewNodeError(text, nil)}
	}
	for _, c := range []struct {
		name  string
		first wire.Reply
		taken bool
	}{
		{"granted", yes, false},
		{"held", no, false},
		{"a key of another type", failed("WRONGTYPE Operation against a key"), false},
		{"a register of another type", failed("FENCE WRONGTYPE Operation against a key"), false},
		{"a script that the node did not know", failed("NOSCRIPT No matching script"), true},
		{"no memory for the mark", failed("OOM command not allowed"), true},
		{"no answer", wire.Reply{Answer: wire.Unknown, Sent: true, Silent: true, Err: wire.NewNodeError("EOF", io.EOF)}, true},
		{"an answer that no server gives", failed("unexpected reply int"), true},
	} {
		f := &batch{calls: []*Call{{Question: &plain}, {Question: &grant}, {Question: &plain}, {Question: &grant}, {Question: &grant}}}
		f.chooseComparing(true)
		checks := ""
		for _, c := range f.calls {
			checks += fmt.Sprint(c.comparesMark, " ")
			f.results = append(f.results, result{reply: yes})
		}
		if checks != "false true false false false " {
			t.Errorf("they compare: %s", checks)
		}
		f.results[1].reply = c.first
		f.revokeUncompared()
		for _, i := range []int{3, 4} {
			rep := f.results[i].reply
			if taken := rep.Answer == wire.Unknown && rep.Stored && rep.Sent && rep.Err != nil; taken != c.taken || !taken && rep.Answer != wire.Yes {
				t.Errorf("%s: the grant behind is %+v, want taken back %v", c.name, rep, c.taken)
			}
		}
		for _, i := range []int{0, 2} {
			if f.results[i].reply.Answer != wire.Yes {
				t.Errorf("%s: an extension was taken back", c.name)
			}
		}
	}
	f := &batch{calls: []*Call{{Question: &grant}, {Question: &grant}}}
	f.chooseComparing(false) // over who knows how many connections
	if !f.calls[0].comparesMark || !f.calls[1].comparesMark {
		t.Error("a batch that may be split compares only once")
	}
}
