package wire

import (
	"fmt"
	"strings"
)

// This file is lua/releases.lua and lua/extends.lua: the plain releases and rollbacks, or the
// extensions, of a batch to one node, joined in one script. A release costs a node more than
// the acquire before it, and most of that for calling a script at all.
//
// A joint script is believed only where it says that it deleted or extended a lock in that
// step. All others are asked again by their own script, which alone tells what it found
// instead.

// join makes q a question that may join others: a plain release or rollback, with a register
// that gets the same ttl as those of the others. Its own command is made only if it is sent alone.
func (q *Question) join(name *LockKey) {
	q.Script, q.joins, q.value = releaseScript, name, q.Value
	q.Bytes = 128 + 2*len(name.Full) + len(q.Value)
}

// Joins reports whether the question may join others in one script.
func (q *Question) Joins() bool { return q.joins != nil }

// MadeAlone reports whether the question's own command is made only when it is sent alone.
func (q *Question) MadeAlone() bool { return q.joins != nil && q.Cmds[0] == nil }

// AppendAlone appends the arguments of that command. If known is set, it leaves the register alone.
func (q *Question) AppendAlone(a []any, known bool) []any {
	args := &q.joins.args
	a = append(a, "evalsha", releaseScript.shaArg)
	if q.joins.Fenced && !known {
		a = append(a, keyCounts[3], args.full, args.queue, args.fence, q.value)
	} else {
		a = append(a, keyCounts[2], args.full, args.queue, q.value)
	}
	life := q.joins.lifeArgs(0)
	if q.Kind == AskRelease {
		a = append(a, args.channel)
		if life != nil {
			a = append(a, "", ToAll.Tell.arg())
		}
	} else if life != nil {
		a = append(a, "", "", "")
	}
	return append(a, life...)
}

// A Joint is one command for several questions that may join: either releases and rollbacks,
// or extensions. Its memory is reused: Reset empties it.
type Joint struct {
	questions []*Question // releases come before rollbacks
	releases  int
	registers int
	known     []bool // the register needs no raise, or no ttl
	args      []any
	cmd       Command
	done      string // the reply: '1' for each lock that was deleted or extended, '2': and a waiter was notified, '3': and could not be
	err       error  // instead of the reply
	strange   any    // instead of the reply
}

// Len returns the number of questions.
func (j *Joint) Len() int { return len(j.questions) }

// Releases returns how many of the questions are releases. They are the first.
func (j *Joint) Releases() int { return j.releases }

// Reset removes all questions.
func (j *Joint) Reset() {
	clear(j.questions)
	clear(j.args)
	*j = Joint{questions: j.questions[:0], known: j.known[:0], args: j.args[:0]}
}

// Add adds a question. All releases must be added before the first rollback. If known is set, an
// extension does not raise the register of the lock, which must be there, and a release or a
// rollback leaves it alone.
func (j *Joint) Add(q *Question, known bool) {
	if q.Kind == AskRelease {
		j.releases++
	}
	j.questions = append(j.questions, q)
	j.known = append(j.known, known)
	if j.register(len(j.known)-1) != nil {
		j.registers++
	}
}

// register returns the register that the n-th question names, or nil.
func (j *Joint) register(n int) any {
	if q := j.questions[n]; q.joins.Fenced && (q.Kind == AskExtend || !j.known[n]) {
		return q.joins.args.fence
	}
	return nil
}

// noRegister is, to lua/extends.lua, the fence of a lock that has none.
const noRegister = "-"

// extends reports whether the questions are extensions.
func (j *Joint) extends() bool { return j.questions[0].Kind == AskExtend }

// Command returns the command of all questions. If asText is set, the script is sent as
// text.
func (j *Joint) Command(asText bool) *Command {
	s := releasesScript
	if j.extends() {
		s = extendsScript
	}
	a := append(j.args[:0], "evalsha", s.shaArg)
	if asText {
		a = append(j.args[:0], "eval", s.body)
	}
	a = append(a, len(j.questions)+j.releases+j.registers)
	for _, q := range j.questions {
		a = append(a, q.joins.args.full)
	}
	for _, q := range j.questions[:j.releases] {
		a = append(a, q.joins.args.queue)
	}
	for n := range j.questions {
		if register := j.register(n); register != nil {
			a = append(a, register)
		}
	}
	j.args = j.appendValues(a)
	j.cmd = NewCommand(j.args)
	return &j.cmd
}

// appendValues appends the arguments behind the keys.
func (j *Joint) appendValues(a []any) []any {
	life := j.questions[0].joins.Life // all are of one Locker
	if j.extends() {
		for n, q := range j.questions {
			own := q.Cmds[0]
			switch { // as its own script has them: behind its keys the value and the ttl, and the fence
			case !q.joins.Fenced:
				a = append(append(a, own[4:6]...), noRegister)
			case j.known[n]:
				a = append(append(a, own[5:7]...), "")
			default:
				a = append(a, own[5:8]...)
			}
		}
		return append(a, life.args(0)...)
	}
	if life.isUsual() {
		a = append(a, j.releases)
	} else {
		least, given := life.millis(0)
		a = append(a, fmt.Sprint(j.releases, " ", least, " ", given))
	}
	for _, q := range j.questions {
		a = append(a, q.value)
	}
	return a
}

// Read reads the result of the command; exec is the error of its pipeline.
func (j *Joint) Read(exec error) {
	v, err := result(&j.cmd, exec)
	if j.done, _ = v.(string); err == nil && len(j.done) != len(j.questions) {
		j.strange = v
	}
	j.err = err
}

// Reply returns the Reply to the n-th question. If alone is set, the question has to be
// asked by itself: the lock was not deleted or extended in this step, or the node has
// executed nothing.
func (j *Joint) Reply(n int) (rep Reply, alone bool) {
	switch {
	case j.strange != nil:
		return unexpected(j.questions[n].Kind, j.strange), false
	case j.err == nil && j.done[n] >= '1' && j.done[n] <= '3':
		return Reply{Answer: Yes, Told: j.done[n] == '2', Mute: j.done[n] == '3', Sent: true}, false
	case j.err == nil:
		return Reply{Answer: Unknown, Sent: true}, true
	}
	rep = failed(j.questions[n].Kind, j.err)
	return rep, rep.Sent && !rep.Silent && notExecuted(rep.Err.Text)
}

// A Refusal says how a node took the joint script.
type Refusal uint8

// How a node may take the joint script.
const (
	NotRefused  Refusal = iota
	NotKnown            // it has to be sent as text
	RefusedNow          // it may accept one later
	RefusedEver         // it gave an answer that no server gives: something in between cannot handle it
)

// Refusal returns how the node took the script.
func (j *Joint) Refusal() Refusal {
	switch {
	case j.strange != nil:
		return RefusedEver
	case j.err == nil:
		return NotRefused
	}
	e, said := Explain(j.err)
	switch {
	case !said:
		return NotRefused // nobody said anything
	case strings.HasPrefix(e.Text, "NOSCRIPT"):
		return NotKnown
	case notExecuted(e.Text):
		return RefusedNow
	}
	return RefusedEver
}
