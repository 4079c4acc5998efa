package sim

import (
	"math"
	"strconv"

	"github.com/seed-ce352c9b/redlock/internal/twin"
)

// The twins of the scripts for waiting; see twins.go.

var waitTwins = []scriptTwin{
	{"turn", "dcd2c4017576bdce378113d8f9596d794c1e523d", turnTwin},
	{"wait", "9bf11a58f375f73ae25fc17f536c259cd76731ea", waitTwin},
	{"leave", "9b1d671e4ecc91abe07cde69355ecfd38b3826cf", leaveTwin},
	{"inspect", "8dd22fd38579b74e66584e9a1ceceaa31d2d71ab", inspectTwin},
}

// A scriptQueue is a queue of waiters, with the expiry of each entry.
type scriptQueue struct {
	call          twin.Call
	queue, expiry string
	ms, us        int
}

// openQueue returns a queue; ok is false if one of its keys has another type, or the clock cannot be read.
func openQueue(call twin.Call, queue, expiry string) (q scriptQueue, ok bool) {
	for _, key := range []string{queue, expiry} {
		if kind, err := call("TYPE", key); err != nil || kind != "zset" && kind != "none" {
			return q, false
		}
	}
	now, err := call("TIME")
	t, ok := now.([]any)
	if err != nil || !ok || len(t) != 2 {
		return q, false
	}
	s, us := number(t[0].(string)), number(t[1].(string))
	return scriptQueue{call: call, queue: queue, expiry: expiry, ms: s*1000 + us/1000, us: s*1_000_000 + us}, true
}

// sweep removes the entries that have expired, and those that would expire later than life from now.
func (q scriptQueue) sweep(life string) {
	for _, r := range [][2]string{{"-inf", strconv.Itoa(q.ms - 1)}, {strconv.Itoa(q.ms + number(life) + 1), "+inf"}} {
		for _, entry := range q.list("ZRANGEBYSCORE", q.expiry, r[0], r[1]) {
			q.drop(entry)
		}
	}
}

func (q scriptQueue) drop(entry string) {
	q.call("ZREM", q.queue, entry)
	q.call("ZREM", q.expiry, entry)
}

func (q scriptQueue) list(args ...string) (entries []string) {
	all, _ := q.call(args...)
	list, _ := all.([]any)
	for _, p := range list {
		entries = append(entries, p.(string))
	}
	return entries
}

// setExpiry sets the expiry of an entry and the ttl of the queue.
func (q scriptQueue) setExpiry(entry, life, queueLife string) {
	q.call("ZADD", q.expiry, strconv.Itoa(q.ms+number(life)), entry)
	q.call("PEXPIRE", q.queue, queueLife)
	q.call("PEXPIRE", q.expiry, queueLife)
}

// expiresAt returns when an entry expires; ok is false if it has no expiry.
func (q scriptQueue) expiresAt(entry string) (ms float64, ok bool) {
	score, err := q.call("ZSCORE", q.expiry, entry)
	text, ok := score.(string)
	if err != nil || !ok {
		return 0, false
	}
	ms, err = strconv.ParseFloat(text, 64)
	return ms, err == nil
}

func (q scriptQueue) first() string {
	if list := q.list("ZRANGE", q.queue, "0", "0"); len(list) > 0 {
		return list[0]
	}
	return ""
}

func turnTwin(call twin.Call, keys, argv []string) (any, bool) {
	held, ok := check(call, keys)
	if !ok {
		return nil, false
	}
	q, ok := openQueue(call, keys[2], keys[3])
	if !ok {
		return nil, false
	}
	q.sweep(argv[6])
	value, entry, ticket := argv[0], argv[3], argv[4]
	var before any
	if ticket != "" {
		call("ZADD", q.queue, ticket, entry)
		q.setExpiry(entry, argv[5], argv[6])
		before, _ = call("ZRANK", q.queue, entry)
	} else {
		before, _ = call("ZCARD", q.queue)
	}
	if held != nil {
		left, _ := call("PTTL", keys[0])
		return []any{0, held, left, before, q.us}, true
	}
	for first := q.first(); first != "" && first != entry; first = q.first() {
		if expiresAt, ok := q.expiresAt(first); ok {
			call("PUBLISH", argv[7]+":"+first, "1 "+value)
			return []any{2, first, int(math.Trunc(expiresAt)) - q.ms, before, q.us}, true
		}
		call("ZREM", q.queue, first)
	}
	moved, _ := call("ZADD", keys[1], "GT", "CH", argv[2], "f")
	call("SET", keys[0], value, "PX", argv[1])
	return []any{1, moved, q.us}, true
}

func waitTwin(call twin.Call, keys, argv []string) (any, bool) {
	q, ok := openQueue(call, keys[1], keys[2])
	if !ok {
		return nil, false
	}
	q.sweep(argv[3])
	us := strconv.Itoa(q.us)
	switch argv[1] {
	case "new":
		call("ZADD", q.queue, us, argv[0])
	case "":
		call("ZADD", q.queue, "NX", us, argv[0])
	default:
		call("ZADD", q.queue, argv[1], argv[0])
	}
	q.setExpiry(argv[0], argv[2], argv[3])
	left, _ := call("PTTL", keys[0])
	rank, _ := call("ZRANK", q.queue, argv[0])
	return []any{left, rank, q.us}, true
}

func leaveTwin(call twin.Call, keys, argv []string) (any, bool) {
	q, ok := openQueue(call, keys[1], keys[2])
	if !ok {
		return nil, false
	}
	q.drop(argv[0])
	if there, _ := call("EXISTS", keys[0]); there != 1 {
		q.notify(argv[1], argv[3], number(argv[2]))
	}
	return 1, true
}

// notify announces a value to the first entries whose channels have a subscriber, at most most of them.
func (q scriptQueue) notify(channel, value string, most int) {
	const chunk, longest = 16, 512
	notified := 0
	for from := 0; from < longest; from += chunk {
		entries := q.list("ZRANGE", q.queue, strconv.Itoa(from), strconv.Itoa(from+chunk-1))
		if len(entries) == 0 {
			return
		}
		for _, entry := range entries {
			if expiresAt, ok := q.expiresAt(entry); !ok || expiresAt < float64(q.ms) {
				continue
			}
			if receivers, _ := q.call("PUBLISH", channel+":"+entry, strconv.Itoa(notified+1)+" "+value); receivers != 0 {
				notified++
			}
			if notified == most {
				return
			}
		}
	}
}

func inspectTwin(call twin.Call, keys, _ []string) (any, bool) {
	held, ok := check(call, keys)
	q, isQueue := openQueue(call, keys[2], keys[3])
	if !ok || !isQueue {
		return nil, false
	}
	var waiting []any
	for _, entry := range q.list("ZRANGE", q.queue, "0", "99") {
		if ms, ok := q.expiresAt(entry); ok && ms >= float64(q.ms) {
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
