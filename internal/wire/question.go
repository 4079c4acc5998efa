package wire

import (
	"slices"
	"strconv"
	"time"
)

// A Kind is what a question asks of a node.
type Kind uint8

// Kinds of questions.
const (
	AskAcquire        Kind = iota + 1 // set the value if the key is free, and the register to a proposal
	AskRaise                          // raise the register of a lock that is held
	AskExtend                         // prolong the ttl
	AskHeal                           // set the value on a node that has lost it
	AskRelease                        // delete the value and announce that the lock is free
	AskRollback                       // delete the value of an attempt that failed
	AskAdopt                          // replace the value of another holder by ours
	AskRestore                        // undo a failed adoption: put the old value back
	AskExpireRegister                 // give the register a ttl
	AskInspect                        // read holder, ttl, register and queue
	AskTurn                           // an acquire that respects the queue
	AskWait                           // enter the queue, or refresh the entry
	AskLeave                          // leave the queue
	askLook                           // read the remaining ttl
	askAnnounce                       // publish to those who watch
)

// Stores reports whether the command may leave our value on the node.
func (k Kind) Stores() bool {
	return k == AskAcquire || k == AskTurn || k == AskHeal || k == AskAdopt
}

// Cleans reports whether the command removes what we left on the node, or makes it expire.
// Such a command is owed to the node until the node has answered it.
func (k Kind) Cleans() bool {
	return k == AskRelease || k == AskRollback || k == AskRestore || k == AskExpireRegister
}

// A Question is what is asked of every node alike. The nodes share its arguments, which are
// immutable.
type Question struct {
	Kind     Kind
	Cmds     [2][]any      // one or two commands, adjacent in one pipeline
	Script   *script       // the script of Cmds[0]; nil: a plain command
	Value    string        // our value
	Back     string        // restore: the value that it puts back; adopt: the value that it replaces
	Token    int64         // acquire, turn, adopt, raise: the token that it proposes; 0: none, and the register is left alone
	Bytes    int           // approximate size on the wire
	TTL      time.Duration // how long what it stores lives
	Patience               // how long to wait for the answer

	joins *LockKey // its lock, if it may join others in one script (joint.go); nil: it may not
	value any      // Value as an argument; set with joins
	owed  *LockKey // the lock of a release that is owed in another form; nil: it is owed as it is
	tell  Tell     // release: whom it notifies
}

// add appends a command.
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

// eval appends a script on the keys of a lock and, if it is fenced, its register.
func (q *Question) eval(s *script, name *LockKey, args ...any) {
	q.evalOn(s, name.withFence(), args...)
}

// evalOn appends a script on any keys.
func (q *Question) evalOn(s *script, keys []any, args ...any) {
	q.Script = s
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.shaArg, keyCounts[len(keys)])
	q.add(append(append(all, keys...), args...)...)
}

// keyCounts has numbers of keys as arguments of EVALSHA.
var keyCounts = [...]any{"0", "1", "2", "3", "4", "5"}

// evalGrant is evalOn for a script that may grant the lock. If there is a guard, it is the
// guarded form of the script.
func (q *Question) evalGrant(g *Guard, s *script, keys []any, args ...any) {
	if g == nil {
		q.evalOn(s, keys, args...)
		return
	}
	q.evalOn(s.guarded, append(keys, g.Mark), append(args, CeilMillis(g.Age), markBelieved)...)
}

// Args returns the arguments of the j-th command as it is sent, or nil if there is none. If
// asText is set, the script is sent as text, for a node that does not know its hash. If
// plain is set, SET NX is sent without GET, for servers before 7.0, which do not accept
// both. If check is set, a guarded script compares the node's mark (guard.go).
func (q *Question) Args(j int, asText, plain, check bool) []any {
	args := q.Cmds[j]
	if j == 0 && q.MadeAlone() {
		args = q.AppendAlone(nil, false)
	}
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

// AcquireQuestion sets the value if the key is free, and raises the register to the
// proposal, if that is not 0. It is two plain commands, or one, or under a guard a script.
// Without a guard the register is raised even if the key is not free.
func AcquireQuestion(g *Guard, name *LockKey, value string, ttl time.Duration, proposal int64) Question {
	q := Question{Kind: AskAcquire, Value: value, TTL: ttl, Token: proposal}
	if g != nil {
		q.evalGrant(g, acquireScript, []any{name.args.full, name.args.fence}, value, CeilMillis(ttl), tokenArg(proposal))
		return q
	}
	q.add("set", name.args.full, value, "nx", "get", "px", CeilMillis(ttl))
	if proposal != 0 {
		q.add("zadd", name.args.fence, "gt", "ch", proposal, "f")
	}
	return q
}

// AppendWithoutRegister appends the arguments of a release or a rollback, but for the register.
func AppendWithoutRegister(a, args []any) []any {
	if args[2] != keyCounts[3] {
		return append(a, args...) // it has none
	}
	a = append(append(a, args[:2]...), keyCounts[2])
	return append(append(a, args[3:5]...), args[6:]...)
}

// tokenArg returns a proposed token as an argument of a script: empty if there is none, since a
// register never gets the score 0.
func tokenArg(proposal int64) any {
	if proposal == 0 {
		return ""
	}
	return proposal
}

// RaiseQuestion raises the register to the token if the key has our value.
func RaiseQuestion(name *LockKey, value string, ttl time.Duration, token int64) Question {
	q := Question{Kind: AskRaise, Value: value, TTL: ttl, Token: token}
	q.eval(raiseScript, name, value, token)
	return q
}

// ExtendQuestion prolongs the ttl of our value and, if the lock is fenced, raises the register to
// the fence.
func ExtendQuestion(name *LockKey, value string, ttl time.Duration, fence int64) Question {
	q := Question{Kind: AskExtend, Value: value, TTL: ttl}
	if name.Fenced {
		q.eval(extendScript, name, append([]any{value, CeilMillis(ttl), fence}, name.Life.args(ttl)...)...)
	} else {
		q.eval(extendScript, name, value, CeilMillis(ttl))
	}
	if name.SharesLife(ttl) {
		q.joins = name
	}
	return q
}

// lifeArgs returns the arguments with the register's ttl for the scripts that set it, or nil if
// they need none.
func (k *LockKey) lifeArgs(ttl time.Duration) []any {
	if !k.Fenced {
		return nil
	}
	return k.Life.args(ttl)
}

// HealQuestion sets our value on a node that has lost it, if the key is free.
func HealQuestion(name *LockKey, value string, ttl time.Duration) Question {
	q := Question{Kind: AskHeal, Value: value, TTL: ttl}
	q.add("set", name.args.full, value, "nx", "px", CeilMillis(ttl))
	return q
}

// ReleaseQuestion deletes our value and, in the same step, announces it to the first waiters of the
// queue. What happens to our own entry is in n.
func ReleaseQuestion(name *LockKey, value string, ttl time.Duration, n Notice) Question {
	q := Question{Kind: AskRelease, Value: value, TTL: ttl, tell: n.Tell}
	if name.SharesLife(ttl) && n == ToAll {
		q.join(name)
		return q
	}
	life := name.lifeArgs(ttl)
	if n != ToAll && n != Attempted {
		q.owed = name
	}
	if life == nil && (n.Stay || n.Ticket != 0) { // the arguments behind it count
		least, given := name.Life.millis(ttl)
		life = []any{least, given}
	}
	args := append([]any{value, name.args.channel, n.Place, n.Tell.arg()}, life...)
	switch {
	case n.Ticket != 0:
		args = append(args, TurnLife.Milliseconds(), queueLife.Milliseconds(), strconv.FormatInt(n.Ticket, 10))
	case n.Stay:
		args = append(args, entryLife.Milliseconds())
		if n.Prolong {
			args = append(args, queueLife.Milliseconds())
		}
	}
	q.evalOn(releaseScript, name.toRelease(), args...)
	return q
}

// toRelease returns the keys of a release: the lock, its queue and, if it is fenced, its register.
func (k *LockKey) toRelease() []any {
	if !k.Fenced {
		return []any{k.args.full, k.args.queue}
	}
	return []any{k.args.full, k.args.queue, k.args.fence}
}

// Owed returns the question as it is sent once it is owed to a node. Of a release that is no more
// than the deletion and its announcement: our entry may stand for nobody by then, and an attempt
// to which the lock was handed on has failed there.
func (q *Question) Owed() *Question {
	if q.owed == nil {
		return q
	}
	n := ToAll
	if q.tell == TellAttempt || q.tell == TellHanded {
		n = Attempted
	}
	owed := ReleaseQuestion(q.owed, q.Value, q.TTL, n)
	owed.Patience = q.Patience
	return &owed
}

// HandsOn reports whether a release notifies nobody, since it hands the lock on to the attempt behind it.
func (q *Question) HandsOn() bool {
	return q.Kind == AskRelease && q.tell == 0
}

// Handed reports whether the question takes back an attempt to which the lock was handed on.
func (q *Question) Handed() bool {
	return q.Kind == AskRelease && q.tell == TellHanded
}

// RollbackQuestion deletes our value without an announcement: no majority can have stored it.
func RollbackQuestion(name *LockKey, value string, ttl time.Duration) Question {
	q := Question{Kind: AskRollback, Value: value, TTL: ttl}
	if name.SharesLife(ttl) {
		q.join(name)
		return q
	}
	q.evalOn(releaseScript, name.toRelease(), append([]any{value, "", "", ""}, name.lifeArgs(ttl)...)...)
	return q
}

// AdoptQuestion replaces the value old of another holder by ours, and raises the register to the
// proposal, if that is not 0. In any case, the register gets a note for RestoreQuestion, and a ttl.
func AdoptQuestion(g *Guard, name *LockKey, old, value string, ttl time.Duration, proposal int64) Question {
	q := Question{Kind: AskAdopt, Value: value, Back: old, TTL: ttl, Token: proposal}
	least, given := name.Life.millis(ttl)
	q.evalGrant(g, adoptScript, []any{name.args.full, name.args.fence}, old, value, CeilMillis(ttl), tokenArg(proposal), least, given)
	return q
}

// RestoreQuestion undoes an adoption: it puts old back in place of our value, and announces that to
// the first waiters of the queue where the lock then ends earlier.
func RestoreQuestion(name *LockKey, old, value string, ttl time.Duration) Question {
	q := Question{Kind: AskRestore, Value: value, Back: old, TTL: ttl}
	least, given := name.Life.millis(ttl)
	q.evalOn(restoreScript, name.withQueue(), value, old, least, given, name.args.channel)
	return q
}

// ExpireRegisterQuestion gives the register a ttl.
func ExpireRegisterQuestion(name *LockKey, ttl time.Duration) Question {
	q := Question{Kind: AskExpireRegister, TTL: ttl}
	q.eval(touchScript, name, name.Life.args(ttl)...)
	return q
}

// InspectQuestion reads the holder, the ttl, the register and the queue, and changes nothing.
func InspectQuestion(name *LockKey) Question {
	q := Question{Kind: AskInspect}
	q.evalOn(inspectScript, name.withQueue())
	return q
}

// ReadHolder has a question that reads the remaining ttl of the lock read its value as well.
func (q *Question) ReadHolder(name *LockKey) { q.add("get", name.args.full) }

// LookQuestion reads only the remaining ttl of the lock.
func LookQuestion(name *LockKey) Question {
	q := Question{Kind: askLook}
	q.add("pttl", name.args.full)
	return q
}
