package wire

import (
	"slices"
	"time"
)

// A kind is one thing that is asked of a node.
type Kind uint8

const (
	AskAcquire Kind = iota + 1
	AskRaise
	AskExtend
	AskHeal
	AskRelease
	AskRollback
	AskAdopt
	AskRestore        // a failed adoption: the old value back
	AskExpireRegister // give the register a life
	AskInspect
	AskTurn  // an acquire that minds the queue
	AskWait  // a place in the queue
	AskLeave // and off it
	askLook  // how long is it still held?
)

// Stores: the command may leave our value on the node.
func (k Kind) Stores() bool {
	return k == AskAcquire || k == AskTurn || k == AskHeal || k == AskAdopt
}

// Cleans: the command takes what we left from the node or limits its life, and is
// owed until it is answered.
func (k Kind) Cleans() bool {
	return k == AskRelease || k == AskRollback || k == AskRestore || k == AskExpireRegister
}

// A Question is what is asked of every node alike; the nodes share its arguments,
// which nobody changes.
type Question struct {
	Kind     Kind
	Cmds     [2][]any      // one or two commands, next to each other in one pipeline
	Script   *script       // of cmds[0], if it is one
	Value    string        // our value
	Back     string        // restore: the value that it puts back; adopt: the one that it replaces
	Bytes    int           // about how much goes over the wire
	TTL      time.Duration // how long what it leaves lives
	Patience               // for the answer
}

func (q *Question) add(args ...any) {
	for i := range q.Cmds {
		if q.Cmds[i] == nil {
			q.Cmds[i] = args
			break
		}
	}
	q.Bytes += 16
	for _, a := range args {
		if s, ok := a.(string); ok {
			q.Bytes += len(s) + 8
		}
	}
}

func (q *Question) eval(s *script, name *LockKey, args ...any) {
	q.evalOn(s, []any{name.args.full, name.args.fence}, args...)
}

func (q *Question) evalOn(s *script, keys []any, args ...any) {
	q.Script = s
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.shaArg, keyCounts[len(keys)])
	q.add(append(append(all, keys...), args...)...)
}

// counts are numbers of keys, as arguments.
var keyCounts = [...]any{"0", "1", "2", "3", "4", "5"}

// evalGrant is evalOn for a script that may grant the lock.
func (q *Question) evalGrant(g *Guard, s *script, keys []any, args ...any) {
	if g == nil {
		q.evalOn(s, keys, args...)
		return
	}
	q.evalOn(s.guarded, append(keys, g.Mark), append(args, CeilMillis(g.Age), markBelieved)...)
}

// Args is the j-th command as it is sent; nil: there is none. asText: the script
// goes with its text, for a node that does not know it. plain: SET NX goes without
// GET, for a server before 7.0, which has no both. check: see guard.go.
func (q *Question) Args(j int, asText, plain, check bool) []any {
	args := q.Cmds[j]
	switch {
	case j > 0:
		return args
	case plain:
		return slices.Delete(slices.Clone(args), 4, 5) // without GET
	case asText:
		args = append([]any{"eval", q.Script.body}, args[2:]...)
		if q.Guarded() {
			args[len(args)-1] = markUnknown
		}
	case check:
		args = slices.Clone(args)
		args[len(args)-1] = markChecked
	}
	return args
}

// AcquireQuestion is two plain commands, or a script where there is a guard.
func AcquireQuestion(g *Guard, name *LockKey, value string, ttl time.Duration, proposal int64) Question {
	q := Question{Kind: AskAcquire, Value: value, TTL: ttl}
	if g != nil {
		q.evalGrant(g, acquireScript, []any{name.args.full, name.args.fence}, value, CeilMillis(ttl), proposal)
		return q
	}
	q.add("set", name.args.full, value, "nx", "get", "px", CeilMillis(ttl))
	q.add("zadd", name.args.fence, "gt", "ch", proposal, "f")
	return q
}

func RaiseQuestion(name *LockKey, value string, ttl time.Duration, token int64) Question {
	q := Question{Kind: AskRaise, Value: value, TTL: ttl}
	q.eval(raiseScript, name, value, token)
	return q
}

func ExtendQuestion(name *LockKey, value string, ttl time.Duration, fence int64) Question {
	q := Question{Kind: AskExtend, Value: value, TTL: ttl}
	q.eval(extendScript, name, append([]any{value, CeilMillis(ttl), fence}, registerTTLArgs(ttl)...)...)
	return q
}

func HealQuestion(name *LockKey, value string, ttl time.Duration) Question {
	q := Question{Kind: AskHeal, Value: value, TTL: ttl}
	q.add("set", name.args.full, value, "nx", "px", CeilMillis(ttl))
	return q
}

// ReleaseQuestion tells the first few of the queue; tell says how many. Before that
// our own place goes to its end; "": we have none.
func ReleaseQuestion(name *LockKey, value string, ttl time.Duration, tell int, place string) Question {
	q := Question{Kind: AskRelease, Value: value, TTL: ttl}
	args := []any{value, name.args.channel}
	if life := registerTTLArgs(ttl); life != nil || place != "" || tell != NotifyCount {
		args = append(append(args, place, tell), life...)
	}
	q.evalOn(releaseScript, name.withQueue(), args...)
	return q
}

// RollbackQuestion is a release that announces nothing: nobody held the lock.
func RollbackQuestion(name *LockKey, value string, ttl time.Duration) Question {
	q := Question{Kind: AskRollback, Value: value, TTL: ttl}
	args := []any{value}
	if life := registerTTLArgs(ttl); life != nil {
		args = append(append(args, "", "", ""), life...)
	}
	q.eval(releaseScript, name, args...)
	return q
}

func AdoptQuestion(g *Guard, name *LockKey, old, value string, ttl time.Duration, proposal int64) Question {
	q := Question{Kind: AskAdopt, Value: value, Back: old, TTL: ttl}
	least, given := registerMillis(ttl)
	q.evalGrant(g, adoptScript, []any{name.args.full, name.args.fence}, old, value, CeilMillis(ttl), proposal, least, given)
	return q
}

func RestoreQuestion(name *LockKey, old, value string, ttl time.Duration) Question {
	q := Question{Kind: AskRestore, Value: value, Back: old, TTL: ttl}
	least, given := registerMillis(ttl)
	q.eval(restoreScript, name, value, old, least, given)
	return q
}

// registerTTLArgs is what the scripts that give a register its life are told of it: nothing, if it
// is the usual.
func registerTTLArgs(ttl time.Duration) []any {
	if ttl <= RegisterSlack {
		return nil
	}
	least, given := registerMillis(ttl)
	return []any{least, given}
}

// TouchQuestion gives the register a life.
func ExpireRegisterQuestion(name *LockKey, ttl time.Duration) Question {
	q := Question{Kind: AskExpireRegister, TTL: ttl}
	q.eval(touchScript, name, registerTTLArgs(ttl)...)
	return q
}

func InspectQuestion(name *LockKey) Question {
	q := Question{Kind: AskInspect}
	q.evalOn(inspectScript, name.withQueue())
	return q
}

// LookQuestion asks for what is left of the lock's ttl, and nothing else.
func LookQuestion(name *LockKey) Question {
	q := Question{Kind: askLook}
	q.add("pttl", name.args.full)
	return q
}
