package scripts

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-ce352c9b/redlock/internal/twin"
)

// The twins of the scripts that have lua/guard.lua prepended; see lock.go.

var guards = []Script{
	{"guard+acquire", "c55ce0ecd19631c8ea225ab5023564afb5d1ccd7", guarded(acquireTwin)},
	{"guard+adopt", "a61874e0dbbdfa20e5f7841ca934d5b2735fc68b", guarded(adoptTwin)},
	{"guard+turn", "67a871876b1933d32bee7bdc8c065f89c8c2d4d6", guarded(turnTwin)},
}

var (
	markText = regexp.MustCompile(`^([^\s\x00]+) (\d+)$`)
	replText = regexp.MustCompile(`master_replid:(\w+)`)
	offText  = regexp.MustCompile(`second_repl_offset:(-?\d+)`)
	upText   = regexp.MustCompile(`uptime_in_seconds:(\d+)`)
)

// guarded returns a twin that executes lua/guard.lua before f.
func guarded(f twin.Twin) twin.Twin {
	return func(call twin.Call, keys, argv []string) (any, bool) {
		if _, ok := check(call, keys[0], keys[1]); !ok {
			return nil, false
		}
		mark, age, how := keys[len(keys)-1], number(argv[len(argv)-2]), argv[len(argv)-1]
		since, now, ok := memorySince(call, mark, how)
		if !ok {
			return nil, false
		}
		if left := since + age - now; left > 0 {
			if held, _ := call("GET", keys[0]); held == nil || held == argv[0] {
				return []any{"quarantined", left}, true
			}
		}
		return f(call, keys[:len(keys)-1], argv[:len(argv)-2])
	}
}

// memorySince returns since when the node has certainly lost no data, and the node's time, both in ms. It reads the mark that
// is stored on the node, and checks or replaces it if there is none, if it is in the future, or if how is not "0". ok is false
// if the script itself has to run.
func memorySince(call twin.Call, mark, how string) (since, now int, ok bool) {
	text, err := call("GET", mark)
	clock, wrong := call("TIME")
	if err != nil || wrong != nil {
		return 0, 0, false
	}
	parts := clock.([]any)
	now = number(parts[0].(string))*1000 + number(parts[1].(string))/1000
	id := ""
	if s, ok := text.(string); ok {
		if m := markText.FindStringSubmatch(s); m != nil {
			id, since = m[1], number(m[2])
		}
	}
	known := id != "" && since <= now
	if how == "0" && known {
		return since, now, true
	}
	me := infoField(call, "replication", replText)
	if me == "" {
		return 0, 0, false // a server that reports no ID
	}
	if known && me == id {
		return since, now, true
	}
	since = now
	stats, err := call("INFO", "commandstats")
	if up := infoField(call, "server", upText); up != "" && err == nil && infoField(call, "replication", offText) == "-1" && !strings.Contains(stats.(string), "cmdstat_flush") {
		since = min(now, now-number(up)*1000+1000)
	}
	_, err = call("SET", mark, me+" "+strconv.Itoa(since))
	return since, now, err == nil
}

// infoField returns a field of INFO, or "" if it is missing.
func infoField(call twin.Call, section string, field *regexp.Regexp) string {
	info, err := call("INFO", section)
	if err != nil {
		return ""
	}
	if m := field.FindStringSubmatch(info.(string)); m != nil {
		return m[1]
	}
	return ""
}

func acquireTwin(call twin.Call, keys, argv []string) (any, bool) {
	held, ok := check(call, keys[0], keys[1])
	switch {
	case !ok:
		return nil, false
	case held != nil:
		return []any{0, held}, true
	}
	moved := any(0)
	if argv[2] != "" {
		var err error
		if moved, err = call("ZADD", keys[1], "GT", "CH", argv[2], "f"); err != nil {
			return nil, false
		}
	}
	if _, err := call("SET", keys[0], argv[0], "PX", argv[1]); err != nil {
		return nil, false
	}
	return []any{1, moved}, true
}
