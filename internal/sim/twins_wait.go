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
}

// A queueOf is a queue of waiters, with the expiry of each entry.
type queueOf struct {
	call         twin.Call
	queue, lapse string
	ms, us       int
}

// open returns a queue; ok is false if one of its keys has another type, or the clock cannot be read.
func open(call twin.Call, queue, lapse string) (q queueOf, ok bool) {
	for _, key := range []string{queue, lapse} {
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
	return queueOf{call: call, queue: queue, lapse: lapse, ms: s*1000 + us/1000, us: s*1_000_000 + us}, true
}

// sweep removes the entries that have expired, and those that would expire later than life from now.
func (q queueOf) sweep(life string) {
	for _, r := range [][2]string{{"-inf", strconv.Itoa(q.ms - 1)}, {strconv.Itoa(q.ms + number(life) + 1), "+inf"}} {
		for _, place := range q.list("ZRANGEBYSCORE", q.lapse, r[0], r[1]) {
			q.drop(place)
		}
	}
}

func (q queueOf) drop(place string) {
	q.call("ZREM", q.queue, place)
	q.call("ZREM", q.lapse, place)
}

func (q queueOf) list(args ...string) (places []string) {
	all, _ := q.call(args...)
	list, _ := all.([]any)
	for _, p := range list {
		places = append(places, p.(string))
	}
	return places
}

// last sets the expiry of an entry and the ttl of the queue.
func (q queueOf) last(place, life, queueLife string) {
	q.call("ZADD", q.lapse, strconv.Itoa(q.ms+number(life)), place)
	q.call("PEXPIRE", q.queue, queueLife)
	q.call("PEXPIRE", q.lapse, queueLife)
}

// over returns when an entry expires; ok is false if it has no expiry.
func (q queueOf) over(place string) (ms float64, ok bool) {
	score, err := q.call("ZSCORE", q.lapse, place)
	text, ok := score.(string)
	if err != nil || !ok {
		return 0, false
	}
	ms, err = strconv.ParseFloat(text, 64)
	return ms, err == nil
}

func (q queueOf) first() string {
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
	q, ok := open(call, keys[2], keys[3])
	if !ok {
		return nil, false
	}
	q.sweep(argv[6])
	value, place, ticket := argv[0], argv[3], argv[4]
	var before any
	if ticket != "" {
		call("ZADD", q.queue, ticket, place)
		q.last(place, argv[5], argv[6])
		before, _ = call("ZRANK", q.queue, place)
	} else {
		before, _ = call("ZCARD", q.queue)
	}
	if held != nil {
		left, _ := call("PTTL", keys[0])
		return []any{0, held, left, before, q.us}, true
	}
	for first := q.first(); first != "" && first != place; first = q.first() {
		if over, ok := q.over(first); ok {
			call("PUBLISH", argv[7]+":"+first, "1 "+value)
			return []any{2, first, int(math.Trunc(over)) - q.ms, before, q.us}, true
		}
		call("ZREM", q.queue, first)
	}
	moved, _ := call("ZADD", keys[1], "GT", "CH", argv[2], "f")
	call("SET", keys[0], value, "PX", argv[1])
	return []any{1, moved, q.us}, true
}

func waitTwin(call twin.Call, keys, argv []string) (any, bool) {
	q, ok := open(call, keys[1], keys[2])
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
	q.last(argv[0], argv[2], argv[3])
	left, _ := call("PTTL", keys[0])
	rank, _ := call("ZRANK", q.queue, argv[0])
	return []any{left, rank, q.us}, true
}

func leaveTwin(call twin.Call, keys, argv []string) (any, bool) {
	q, ok := open(call, keys[1], keys[2])
	if !ok {
		return nil, false
	}
	q.drop(argv[0])
	if there, _ := call("EXISTS", keys[0]); there != 1 {
		q.tell(argv[1], argv[3], number(argv[2]))
	}
	return 1, true
}

// tell announces a value to the first entries whose channels have a subscriber, at most most of them.
func (q queueOf) tell(channel, value string, most int) {
	const chunk, longest = 16, 512
	told := 0
	for from := 0; from < longest; from += chunk {
		places := q.list("ZRANGE", q.queue, strconv.Itoa(from), strconv.Itoa(from+chunk-1))
		if len(places) == 0 {
			return
		}
		for _, place := range places {
			if over, ok := q.over(place); !ok || over < float64(q.ms) {
				continue
			}
			if heard, _ := q.call("PUBLISH", channel+":"+place, strconv.Itoa(told+1)+" "+value); heard != 0 {
				told++
			}
			if told == most {
				return
			}
		}
	}
}
