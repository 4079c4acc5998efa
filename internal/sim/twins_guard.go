package sim

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-ce352c9b/redlock/internal/twin"
)

// The twins of the scripts that have lua/guard.lua prepended; see twins.go.

var guardTwins = []scriptTwin{
	{"guard+acquire", "903f91a521d2e497f19f561676860e997eee932e", guarded(acquireTwin)},
	{"guard+adopt", "f6e1ee31587f46fa3d7df57f43283fad2b0672f6", guarded(adoptTwin)},
	{"guard+turn", "94cea5d2ddc5f436fe1900dda9ac579fd5bdd4c4", guarded(turnTwin)},
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
		if _, ok := check(call, keys); !ok {
			return nil, false
		}
		mark, age, how := keys[len(keys)-1], number(argv[len(argv)-2]), argv[len(argv)-1]
		text, err := call("GET", mark)
		clock, wrong := call("TIME")
		if err != nil || wrong != nil {
			return nil, false
		}
		parts := clock.([]any)
		now := number(parts[0].(string))*1000 + number(parts[1].(string))/1000
		id, since := "", 0
		if s, ok := text.(string); ok {
			if m := markText.FindStringSubmatch(s); m != nil {
				id, since = m[1], number(m[2])
			}
		}
		known := id != "" && since <= now
		if how != "0" || !known {
			told := func(section string, field *regexp.Regexp) string {
				info, err := call("INFO", section)
				if err != nil {
					return ""
				}
				if m := field.FindStringSubmatch(info.(string)); m != nil {
					return m[1]
				}
				return ""
			}
			me := told("replication", replText)
			if me == "" {
				return nil, false // a server that reports no ID
			}
			if !known || me != id {
				since = now
				stats, err := call("INFO", "commandstats")
				if up := told("server", upText); up != "" && err == nil && told("replication", offText) == "-1" && !strings.Contains(stats.(string), "cmdstat_flush") {
					since = min(now, now-number(up)*1000+1000)
				}
				if _, err := call("SET", mark, me+" "+strconv.Itoa(since)); err != nil {
					return nil, false
				}
			}
		}
		if left := since + age - now; left > 0 {
			if held, _ := call("GET", keys[0]); held == nil || held == argv[0] {
				return []any{"quarantined", left}, true
			}
		}
		return f(call, keys[:len(keys)-1], argv[:len(argv)-2])
	}
}

func acquireTwin(call twin.Call, keys, argv []string) (any, bool) {
	held, ok := check(call, keys)
	switch {
	case !ok:
		return nil, false
	case held != nil:
		return []any{0, held}, true
	}
	moved, err := call("ZADD", keys[1], "GT", "CH", argv[2], "f")
	if err != nil {
		return nil, false
	}
	if _, err := call("SET", keys[0], argv[0], "PX", argv[1]); err != nil {
		return nil, false
	}
	return []any{1, moved}, true
}
