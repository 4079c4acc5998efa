package scripts

import (
	"math"
	"strconv"
	"strings"

	"github.com/seed-ce352c9b/redlock/internal/twin"
)

// Waiting are the twins of the scripts for waiting.
var Waiting = []Script{
	{"turn", "f0d74f2621e4ef06a1022b13b40378869d794e6e", turnTwin},
	{"wait", "b21ee5b5ccaba7a77dc8b520937fc84a598a03b6", waitTwin},
	{"leave", "5fddad4b79f1320518fc26ee34c080c782524d2e", leaveTwin},
	{"inspect", "fedd99c8d5cbd54024572c435cd7c9cd39dfcf0a", inspectTwin},
}

// A scriptQueue is a queue of waiters; see lua/queue.lua.
type scriptQueue struct {
	call   twin.Call
	key    string
	ms, us int  // the node's time; 0: not asked for
	met    bool // front has come upon our entry
}

const (
	EndsAt = 4e15 // before the ms at which an entry expires
	chunk  = 64   // members that are read at once
)

// openQueue returns a queue; ok is false if its key has another type.
func openQueue(call twin.Call, key string) (q *scriptQueue, ok bool) {
	kind, err := call("TYPE", key)
	return &scriptQueue{call: call, key: key}, err == nil && (kind == "zset" || kind == "none")
}

func (q *scriptQueue) clock() {
	if q.us == 0 {
		now, _ := q.call("TIME")
		t := now.([]any)
		q.us = number(t[0].(string))*1_000_000 + number(t[1].(string))
		q.ms = q.us / 1000
	}
}

// A member is one member of the sorted set: an entry by its ticket, or an entry and "!" by its expiry.
type member struct {
	name  string
	score float64
}

// read returns a chunk of the queue of at most n members, and when its entries expire.
func (q *scriptQueue) read(from, n int) (all []member, expiry map[string]float64) {
	reply, _ := q.call("ZRANGE", q.key, strconv.Itoa(from), strconv.Itoa(from+n-1), "WITHSCORES")
	list, _ := reply.([]any)
	expiry = make(map[string]float64)
	for i := 0; i+1 < len(list); i += 2 {
		score, err := strconv.ParseFloat(list[i+1].(string), 64)
		name, ok := strings.CutSuffix(list[i].(string), "!")
		if err != nil || math.IsInf(score, 0) { // tonumber does not read these
			score = 9e15
			if ok {
				expiry[name] = -EndsAt
			}
		} else if ok {
			expiry[name] = score - EndsAt
		}
		all = append(all, member{list[i].(string), score})
	}
	return all, expiry
}

// expiresAt returns when an entry of a long queue expires; ok is false if it has no expiry.
func (q *scriptQueue) expiresAt(entry string, expiry map[string]float64, long bool) (ms float64, ok bool) {
	if ms, ok = expiry[entry]; ok || !long {
		return ms, ok
	}
	score, _ := q.call("ZSCORE", q.key, entry+"!")
	text, ok := score.(string)
	if !ok {
		return 0, false
	}
	ms, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(ms, 0) {
		ms = 0
	}
	return ms - EndsAt, true
}

// front returns the first entry that has not expired, and when it does. It drops those before.
func (q *scriptQueue) front(life int, ours string, ticket *float64) (first string, expires float64) {
	for {
		all, expiry := q.read(0, chunk)
		for _, m := range all {
			switch {
			case m.name == ours:
				q.met = true
				if ticket == nil {
					return ours, 0
				}
			case strings.HasSuffix(m.name, "!") && m.score >= EndsAt:
				return q.none(ours, ticket), 0
			case strings.HasSuffix(m.name, "!"):
				q.call("ZREM", q.key, m.name)
			default:
				if ticket != nil && (*ticket < m.score || *ticket == m.score && ours < m.name) {
					return ours, 0
				}
				q.clock()
				ends, ok := q.expiresAt(m.name, expiry, len(all) == chunk)
				if ok && ends >= float64(q.ms) && ends <= float64(q.ms+life) {
					return m.name, ends
				}
				q.call("ZREM", q.key, m.name, m.name+"!")
			}
		}
		if len(all) < chunk {
			return q.none(ours, ticket), 0
		}
	}
}

// none returns who is first if there is no other entry.
func (q *scriptQueue) none(ours string, ticket *float64) string {
	if ticket == nil {
		return ""
	}
	return ours
}

// ends returns the score of an expiry that is so many ms from now.
func (q *scriptQueue) ends(life string) string {
	return strconv.FormatInt(EndsAt+int64(q.ms+number(life)), 10)
}

func turnTwin(call twin.Call, keys, argv []string) (any, bool) {
	held, ok := check(call, keys[0], keys[1])
	if !ok {
		return nil, false
	}
	q, ok := openQueue(call, keys[2])
	if !ok {
		return nil, false
	}
	value, entry := argv[0], argv[3]
	var ticket *float64
	if argv[4] != "" {
		t, _ := strconv.ParseFloat(argv[4], 64)
		ticket = &t
	}
	first, expires := q.front(number(argv[6]), entry, ticket)
	turn := first == "" || first == entry
	if turn && held == nil {
		if ticket == nil {
			q.clock()
		}
		moved := any(0)
		if argv[2] != "" {
			moved, _ = call("ZADD", keys[1], "GT", "CH", argv[2], "f")
		}
		if entry != "" {
			call("ZREM", q.key, entry, entry+"!")
		}
		call("SET", keys[0], value, "PX", argv[1])
		return []any{1, moved, q.us}, true
	}
	q.clock()
	if ticket != nil {
		var lives any
		if turn && !q.met || argv[8] == "1" {
			lives, _ = call("PEXPIRE", q.key, argv[6])
		}
		call("ZADD", q.key, argv[4], entry, q.ends(argv[5]), entry+"!")
		if lives == 0 {
			call("PEXPIRE", q.key, argv[6])
		}
	}
	if held != nil {
		before := 1
		if turn {
			before = 0
		}
		left, _ := call("PTTL", keys[0])
		return []any{0, held, left, before, q.us}, true
	}
	call("PUBLISH", argv[7]+":"+first, "1 "+value)
	return []any{2, first, int(math.Trunc(expires)) - q.ms, 1, q.us}, true
}

func waitTwin(call twin.Call, keys, argv []string) (any, bool) {
	q, ok := openQueue(call, keys[1])
	if !ok {
		return nil, false
	}
	if argv[1] != "new" {
		q.front(number(argv[3]), argv[0], nil)
	}
	q.clock()
	left, _ := call("PTTL", keys[0])
	before, _ := call("ZRANK", q.key, argv[0])
	lives, _ := call("PEXPIRE", q.key, argv[3])
	if before != nil && argv[1] != "new" {
		call("ZADD", q.key, q.ends(argv[2]), argv[0]+"!")
		return []any{left, before, q.us}, true
	}
	call("ZADD", q.key, strconv.Itoa(q.us), argv[0], q.ends(argv[2]), argv[0]+"!")
	if lives == 0 {
		call("PEXPIRE", q.key, argv[3])
	}
	before, _ = call("ZRANK", q.key, argv[0])
	return []any{left, before, q.us}, true
}

func leaveTwin(call twin.Call, keys, argv []string) (any, bool) {
	q, ok := openQueue(call, keys[1])
	if !ok {
		return nil, false
	}
	call("ZREM", q.key, argv[0], argv[0]+"!")
	if there, _ := call("EXISTS", keys[0]); there != 1 {
		q.notify(argv[1], " ", argv[3], number(argv[2]))
	}
	return 1, true
}

// notify announces a value to the first entries that have not expired and whose channels have a subscriber, at most most of them.
func (q *scriptQueue) notify(channel, nth, value string, most int) {
	const longest = 512
	notified := 0
	all, expiry := q.read(0, chunk)
	for from := 0; len(all) > 0 && from < longest; all, _ = q.read(from, chunk) {
		q.clock()
		for _, m := range all {
			if strings.HasSuffix(m.name, "!") {
				continue
			}
			if ends, ok := q.expiresAt(m.name, expiry, len(all) == chunk); !ok || ends < float64(q.ms) {
				continue
			}
			if receivers, _ := q.call("PUBLISH", channel+":"+m.name, strconv.Itoa(notified+1)+nth+value); receivers != 0 {
				notified++
			}
			if notified == most {
				return
			}
		}
		if from += chunk; len(all) < chunk {
			break
		}
	}
}

// tell is notify for a release, which reads fewer members, believes young tickets, and passes over ours. It returns the number of those
// notified. If most is 1, expired entries count, too.
func (q *scriptQueue) tell(channel, nth, value, ours string, most int) (notified int) {
	if most > 1 {
		q.clock()
	}
	for from, n := 0, 4; from < 512; from, n = from+n, chunk {
		all, expiry := q.read(from, n)
		for _, m := range all {
			if strings.HasSuffix(m.name, "!") {
				if m.score >= EndsAt {
					return notified
				}
				continue
			}
			if m.name == ours || most > 1 && !(m.score < EndsAt && m.score+2_000_000 >= float64(q.us)) && !q.lives(m.name, expiry) {
				continue
			}
			if receivers, _ := q.call("PUBLISH", channel+":"+m.name, strconv.Itoa(notified+1)+nth+value); receivers != 0 {
				notified++
			}
			if notified == most {
				return notified
			}
		}
		if len(all) < n {
			break
		}
	}
	return notified
}

// lives reports whether an entry has not expired.
func (q *scriptQueue) lives(entry string, expiry map[string]float64) bool {
	ends, ok := q.expiresAt(entry, expiry, true)
	return ok && ends >= float64(q.ms)
}

func inspectTwin(call twin.Call, keys, _ []string) (any, bool) {
	held, ok := check(call, keys[0], keys[1])
	q, isQueue := openQueue(call, keys[2])
	if !ok || !isQueue {
		return nil, false
	}
	q.clock()
	reply, _ := call("ZRANGE", q.key, "0", "99")
	list, _ := reply.([]any)
	var waiting []any
	for _, name := range list {
		entry := name.(string)
		if ms, ok := q.expiresAt(entry, nil, true); ok && ms >= float64(q.ms) && !strings.HasSuffix(entry, "!") {
			waiting = append(waiting, entry)
		}
	}
	left, _ := call("PTTL", keys[0])
	score, _ := call("ZSCORE", keys[1], "f")
	return []any{orEmpty(held), left, orEmpty(score), waiting}, true
}

func orEmpty(v any) any {
	if v == nil {
		return ""
	}
	return v
}
