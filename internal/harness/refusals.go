package harness

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/lane"
	"github.com/seed-ce352c9b/redlock/internal/wire"
)

// A RefusingNode is a node that can refuse one command to a client, also where a script calls it.
type RefusingNode struct {
	Do     func(commands ...[]string) []any // executes commands that are not refused, and returns their replies
	Client *redis.Client                    // to which one is refused
	Refuse func(command string)             // "": none
}

// CheckRefusals asks each question of the library while the node refuses one of the commands that the question executes,
// for each of these commands and in each state of the lock, of its register and of its queue. It fails the test
//
//   - if a lock was granted, prolonged or deleted, or an entry was queued, and the reply does not say so. Two exceptions:
//     plain commands may grant a lock and fail then, if the reply says that this has to be undone; and an extension may
//     prolong our own lock and fail then, for that lock is released anyway;
//   - if the clean-up that the reply asks for does not restore the lock;
//   - if a queue is left without a ttl;
//   - if a register is left without a ttl, and nobody gives it one. Either the reply says that the register was raised, and
//     then the caller gives it a ttl; or the question was a raise or an extension, and then the caller holds the lock and
//     its release does that.
//
// on runs f as a test with a node of its own. Unless all is set, it leaves out states that tell less.
func CheckRefusals(t *testing.T, all bool, on func(t *testing.T, f func(t *testing.T, n RefusingNode))) {
	seen := map[string]bool{}
	for i, c := range refusalCases() {
		for _, name := range c.scripts {
			seen[name] = true
		}
		t.Run(c.name, func(t *testing.T) {
			on(t, func(t *testing.T, n RefusingNode) {
				c := refusalCases()[i] // with tickets of this test's time
				c.check(t, n, all)
			})
		})
	}
	for _, name := range Scripts() {
		if !seen[name] {
			t.Errorf("no question runs %s.lua", name)
		}
	}
}

func (c *refusalCase) check(t *testing.T, n RefusingNode, all bool) {
	for _, name := range Scripts() {
		n.Do([]string{"SCRIPT", "LOAD", Script(name)}, []string{"SCRIPT", "LOAD", Script("guard") + Script(name)})
	}
	texts := ""
	for _, name := range c.scripts {
		texts += Script(name)
	}
	commands := c.commands
	for _, m := range regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`).FindAllStringSubmatch(texts, -1) {
		commands = append(commands, m[1])
	}
	slices.Sort(commands)
	for _, command := range append(slices.Compact(commands), "") {
		n.Refuse(command)
		for _, s := range c.states(all) {
			r := refusal{T: t, n: n, c: c, state: s, command: command}
			if r.check(); r.failed {
				break // the other states fail likewise
			}
		}
		n.Refuse("")
	}
}

const (
	refusalMine  = "me:11111111-2222-4333-8444-555555555555"
	refusalEntry = "entry:11111111-2222-4333-8444-555555555555"
	refusalMark  = "{redlock}:boot"
	refusalTTL   = 20 * time.Second
	otherTTL     = time.Minute // of whatever holds the lock before
	newToken     = 1_000
)

// A refusalCase is a question, the scripts that it runs, and the commands that it executes besides.
type refusalCase struct {
	name     string
	scripts  []string
	question wire.Question
	joint    bool // asked by the joint script
	queues   bool // it reads or changes the queue
	commands []string
}

func refusalCases() []refusalCase {
	name, _ := wire.NameKey("", Job)
	guard := &wire.Guard{Age: time.Millisecond, Mark: refusalMark}
	turn := func(g *wire.Guard, entry string, ticket int64, prolong bool) wire.Question {
		return wire.TurnQuestion(g, name, refusalMine, refusalTTL, newToken, entry, ticket, prolong)
	}
	release := func(n wire.Notice) wire.Question { return wire.ReleaseQuestion(name, refusalMine, refusalTTL, n) }
	extend := wire.ExtendQuestion(name, refusalMine, refusalTTL, newToken)
	ticket := time.Now().UnixMicro()
	return []refusalCase{
		{name: "acquire", question: wire.AcquireQuestion(nil, name, refusalMine, refusalTTL, newToken), commands: []string{"SET", "ZADD"}},
		{name: "acquire under a guard", scripts: []string{"guard", "acquire"}, question: wire.AcquireQuestion(guard, name, refusalMine, refusalTTL, newToken)},
		{name: "turn", scripts: []string{"turn"}, question: turn(nil, refusalEntry, ticket, false), queues: true},
		{name: "turn that prolongs", scripts: []string{"turn"}, question: turn(nil, refusalEntry, ticket, true), queues: true},
		{name: "turn without a ticket", scripts: []string{"turn"}, question: turn(nil, refusalEntry, 0, false), queues: true},
		{name: "turn without an entry", scripts: []string{"turn"}, question: turn(nil, "", 0, false), queues: true},
		{name: "turn under a guard", scripts: []string{"guard", "turn"}, question: turn(guard, refusalEntry, ticket, false), queues: true},
		{name: "wait", scripts: []string{"wait"}, question: wire.WaitQuestion(name, refusalEntry, false), queues: true},
		{name: "wait behind all", scripts: []string{"wait"}, question: wire.WaitQuestion(name, refusalEntry, true), queues: true},
		{name: "leave", scripts: []string{"leave"}, question: wire.LeaveQuestion(name, refusalEntry, refusalMine, 2), queues: true},
		{name: "release", scripts: []string{"release"}, question: release(wire.ToAll), queues: true},
		{name: "release that leaves the queue", scripts: []string{"release"}, question: release(wire.Notice{Tell: 2, Place: refusalEntry}), queues: true},
		{name: "release that stays", scripts: []string{"release"}, question: release(wire.Notice{Tell: 2, Place: refusalEntry, Stay: true}), queues: true},
		{name: "release that stays and prolongs", scripts: []string{"release"}, question: release(wire.Notice{Tell: 2, Place: refusalEntry, Stay: true, Prolong: true}), queues: true},
		{name: "release with a ticket", scripts: []string{"release"}, question: release(wire.Notice{Tell: 2, Place: refusalEntry, Ticket: ticket}), queues: true},
		{name: "joint release", scripts: []string{"releases"}, question: release(wire.ToAll), joint: true, queues: true},
		{name: "rollback", scripts: []string{"release"}, question: wire.RollbackQuestion(name, refusalMine, refusalTTL)},
		{name: "joint rollback", scripts: []string{"releases"}, question: wire.RollbackQuestion(name, refusalMine, refusalTTL), joint: true},
		{name: "extend", scripts: []string{"extend"}, question: extend},
		{name: "joint extend", scripts: []string{"extends"}, question: extend, joint: true},
		{name: "raise", scripts: []string{"raise"}, question: wire.RaiseQuestion(name, refusalMine, refusalTTL, newToken)},
		{name: "heal", question: wire.HealQuestion(name, refusalMine, refusalTTL), commands: []string{"SET"}},
		{name: "adopt", scripts: []string{"adopt"}, question: wire.AdoptQuestion(nil, name, OtherValue, refusalMine, refusalTTL, newToken)},
		{name: "adopt under a guard", scripts: []string{"guard", "adopt"}, question: wire.AdoptQuestion(guard, name, OtherValue, refusalMine, refusalTTL, newToken)},
		{name: "restore", scripts: []string{"restore"}, question: wire.RestoreQuestion(name, OtherValue, refusalMine, refusalTTL)},
		{name: "touch", scripts: []string{"touch"}, question: wire.ExpireRegisterQuestion(name, refusalTTL)},
		{name: "inspect", scripts: []string{"inspect"}, question: wire.InspectQuestion(name), queues: true},
	}
}

// A refusalState is what the node stores before a question.
type refusalState struct{ lock, register, queue, mark string }

const another = "another type"

// states returns the states that a question may find. Of lock, register and queue at most one has another type.
func (c *refusalCase) states(all bool) (states []refusalState) {
	marks, queues, registers := []string{"old"}, []string{"none"}, []string{"none", "with a ttl", another}
	if c.queues {
		queues = append(queues, "ours", "one before", "expired", another)
	}
	if all && c.queues {
		queues = append(queues, "one behind", "ours and one behind")
	}
	if all || c.question.Kind == wire.AskRestore {
		registers = append(registers, "without a ttl", "with a note")
	}
	if all && c.question.Guarded() {
		marks = append(marks, "none")
	}
	for _, mark := range marks {
		for _, lock := range []string{"free", "ours", "another's", another} {
			for _, register := range registers {
				for _, queue := range queues {
					s := refusalState{lock, register, queue, mark}
					if strings.Count(fmt.Sprint(s), another) < 2 && (all || register == "none" || queue == "none") {
						states = append(states, s)
					}
				}
			}
		}
	}
	return states
}

// A refusal is one question in one state while one command is refused.
type refusal struct {
	*testing.T
	n       RefusingNode
	c       *refusalCase
	state   refusalState
	command string
	reply   wire.Reply
	failed  bool
}

func (r *refusal) bad(format string, args ...any) {
	r.Helper()
	if r.failed {
		return // what follows from it
	}
	r.failed = true
	command := r.command
	if command == "" {
		command = "nothing"
	}
	r.Errorf("%s is refused; before: lock %s, register %s, queue %s, mark %s: %s\nthe reply is %+v (error %v)",
		command, r.state.lock, r.state.register, r.state.queue, r.state.mark, fmt.Sprintf(format, args...), r.reply, r.reply.Err)
}

// store has the node store the state.
func (r *refusal) store() {
	now, _ := strconv.ParseInt(fmt.Sprint(r.n.Do([]string{"TIME"})[0].([]any)[0]), 10, 64)
	cmds := [][]string{{"DEL", Job, JobRegister, JobQueue, refusalMark}}
	do := func(args ...string) { cmds = append(cmds, args) }
	add := func(entry string, ticket, ends int64) {
		do("ZADD", JobQueue, fmt.Sprint(ticket), entry, EndOf(ends), entry+"!")
	}
	ttl := fmt.Sprint(otherTTL.Milliseconds())
	switch r.state.lock {
	case "ours":
		do("SET", Job, refusalMine, "PX", ttl)
	case "another's":
		do("SET", Job, OtherValue, "PX", ttl)
	case another:
		do("RPUSH", Job, "x")
	}
	switch r.state.register {
	case "without a ttl":
		do("ZADD", JobRegister, "5", "f")
	case "with a ttl":
		do("ZADD", JobRegister, "5", "f")
		do("PEXPIRE", JobRegister, "90000000")
	case "with a note": // of when what our value replaced would have expired
		do("ZADD", JobRegister, "5", "f", fmt.Sprint((now+50)*1000), refusalMine)
		do("PEXPIRE", JobRegister, "90000000")
	case another:
		do("SET", JobRegister, "word")
	}
	alive, over := now*1000+1900, now*1000-1000 // alive: no later than TurnLife
	switch r.state.queue {
	case "ours":
		add(refusalEntry, (now-3)*1_000_000, alive)
	case "one before":
		add("before", (now-5)*1_000_000, alive)
	case "one behind":
		add("behind", (now+3600)*1_000_000, alive)
	case "ours and one behind":
		add(refusalEntry, (now-3)*1_000_000, alive)
		add("behind", (now+3600)*1_000_000, alive)
	case "expired":
		add("before", (now-5)*1_000_000, over)
	case another:
		do("SET", JobQueue, "word")
	}
	do("PEXPIRE", JobQueue, "15000")
	if r.state.mark == "old" {
		do("SET", refusalMark, "x 1")
	}
	r.n.Do(cmds...)
}

// A refusalKey is what a key has.
type refusalKey struct {
	kind, value string
	members     map[string]float64
	ttl         int64 // ms; -1: none; -2: no such key
}

func (k refusalKey) endless() bool { return k.ttl == -1 }

// A refusalRecord is what the node stores.
type refusalRecord struct{ lock, register, queue refusalKey }

func (r *refusal) read() (rec refusalRecord) {
	names := []string{Job, JobRegister, JobQueue}
	var cmds [][]string
	for _, name := range names {
		cmds = append(cmds, []string{"TYPE", name}, []string{"PTTL", name})
	}
	kinds := r.n.Do(cmds...)
	cmds = nil
	for i, name := range names {
		switch kinds[2*i] {
		case "string":
			cmds = append(cmds, []string{"GET", name})
		case "zset":
			cmds = append(cmds, []string{"ZRANGE", name, "0", "-1", "WITHSCORES"})
		default:
			cmds = append(cmds, []string{"EXISTS", name})
		}
	}
	values := r.n.Do(cmds...)
	for i, k := range []*refusalKey{&rec.lock, &rec.register, &rec.queue} {
		k.kind = fmt.Sprint(kinds[2*i])
		k.ttl, _ = strconv.ParseInt(fmt.Sprint(kinds[2*i+1]), 10, 64)
		switch v := values[i].(type) {
		case string:
			k.value = v
		case []any:
			k.members = map[string]float64{}
			for j := 0; j < len(v); j += 2 {
				k.members[v[j].(string)], _ = strconv.ParseFloat(fmt.Sprint(v[j+1]), 64)
			}
		}
	}
	return rec
}

// ask asks the node a question.
func (r *refusal) ask(q *wire.Question, joint bool) wire.Reply {
	ctx, pipe := context.Background(), r.n.Client.Pipeline()
	if joint {
		var j wire.Joint
		j.Add(q, false)
		pipe.Process(ctx, j.Command(false))
		_, err := pipe.Exec(ctx)
		j.Read(err)
		reply, _ := j.Reply(0)
		return reply
	}
	var cmds []wire.Command
	for i := 0; i < 2; i++ {
		if args := q.Args(i, false, false, false); args != nil {
			cmds = append(cmds, wire.NewCommand(args))
		}
	}
	for i := range cmds {
		pipe.Process(ctx, &cmds[i])
	}
	_, err := pipe.Exec(ctx)
	return q.Read(cmds, false, err)
}

func (r *refusal) check() {
	r.Helper()
	q := &r.c.question
	r.store()
	before := r.read()
	r.reply = r.ask(q, r.c.joint)
	if e := r.reply.Err; e != nil && (!r.reply.Sent || r.reply.Silent || strings.Contains(e.Text, "NOSCRIPT")) {
		r.Fatalf("the node did not answer: %v", e)
	}
	after, residue := r.read(), lane.Residue(0).Settle(q, &r.reply)
	r.checkLock(before.lock, after.lock)
	r.checkRegister(before.register, after.register, residue)
	r.checkQueue(before.queue, after.queue)
	r.checkCleanUp(before.lock, residue)
}

func (r *refusal) checkLock(before, after refusalKey) {
	r.Helper()
	done := r.reply.Answer == wire.Yes || r.reply.Stored && r.c.question.Script == nil
	if (after.kind != before.kind || after.value != before.value) && !done {
		r.bad("the lock was %v and is %v", before, after)
	}
	if after.endless() && !before.endless() {
		r.bad("the lock has no ttl")
	}
	moved := max(after.ttl-before.ttl, before.ttl-after.ttl) > 5000
	if k := r.c.question.Kind; moved && !done && k != wire.AskExtend && k != wire.AskRestore { // a restore is owed until it has an answer
		r.bad("the lock's ttl was %d and is %d ms", before.ttl, after.ttl)
	}
}

func (r *refusal) checkRegister(before, after refusalKey, residue lane.Residue) {
	r.Helper()
	switch {
	case before.kind != "none" && (after.kind != before.kind || after.value != before.value):
		r.bad("the register was %v and is %v", before, after)
	case before.members["f"] > after.members["f"]:
		r.bad("the register was %v and is %v", before, after)
	}
	if k := r.c.question.Kind; after.endless() && !before.endless() && !residue.Has(lane.Raised) && k != wire.AskRaise && k != wire.AskExtend {
		r.bad("the register has no ttl, and nobody gives it one")
	}
}

func (r *refusal) checkQueue(before, after refusalKey) {
	r.Helper()
	if before.kind == "string" {
		if after.kind != before.kind {
			r.bad("the queue was %v and is %v", before, after)
		}
		return
	}
	if after.endless() {
		r.bad("the queue has no ttl: %v", after)
	}
	for entry, score := range before.members {
		others := strings.TrimSuffix(entry, "!") != refusalEntry && r.state.queue != "expired"
		if got, there := after.members[entry]; others && (!there || got != score) {
			r.bad("the queue was %v and is %v", before.members, after.members)
		}
	}
	// An entry that goes is in nobody's way.
	if r.reply.Answer == wire.Unknown && !maps.Equal(before.members, after.members) {
		for entry, score := range after.members {
			if was, there := before.members[entry]; !there || was != score {
				r.bad("queued all the same: the queue was %v and is %v", before.members, after.members)
			}
		}
	}
}

// checkCleanUp does what the caller does about what it may have left, once the node refuses nothing.
func (r *refusal) checkCleanUp(before refusalKey, residue lane.Residue) {
	r.Helper()
	q := &r.c.question
	name, _ := wire.NameKey("", Job)
	var undo wire.Question
	switch {
	case q.Kind == wire.AskAdopt && residue.Has(lane.Holds):
		undo = wire.RestoreQuestion(name, q.Back, q.Value, q.TTL)
	case q.Kind.Stores() && residue.Has(lane.Holds):
		undo = wire.RollbackQuestion(name, q.Value, q.TTL)
	case residue.Has(lane.Raised):
		undo = wire.ExpireRegisterQuestion(name, q.TTL)
	default:
		return
	}
	r.n.Refuse("")
	defer r.n.Refuse(r.command)
	r.ask(&undo, false)
	after := r.read()
	if after := after.lock; r.state.lock != "ours" && (after.kind != before.kind || after.value != before.value) {
		r.bad("after the clean-up the lock is %v, and was %v", after, before)
	}
	if after := after.register; after.kind == "zset" && after.endless() {
		r.bad("after the clean-up the register has no ttl")
	}
}
