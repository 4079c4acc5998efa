package redlocktest

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// helloVersion makes HELLO name the same server as INFO does.
var helloVersion = strings.NewReplacer("$9\r\nminiredis\r\n", "$5\r\nredis\r\n", "$5\r\n8.4.0\r\n", "$6\r\n7.0.15\r\n")

// info returns the reply of Redis 7.0.15 to INFO, reduced to the fields that clients of locks read.
func (n *Node) info(sections []string) string {
	id, now := n.runID(), n.clock.now()
	n.mu.Lock()
	up, client, flushes := now.Sub(n.since), 0, n.flushes
	for c := range n.conns {
		if !c.dead {
			client++
		}
	}
	n.mu.Unlock()
	if up < 0 { // the clock was stepped back to before the start
		up = 0
	}
	stats := "# Commandstats\r\n"
	if flushes > 0 {
		stats += fmt.Sprintf("cmdstat_flushall:calls=%d,usec=1,usec_per_call=1.00,rejected_calls=0,failed_calls=0\r\n", flushes)
	}
	all := []struct{ name, text string }{
		{"server", fmt.Sprintf("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:%s\r\ntcp_port:6379\r\nserver_time_usec:%d\r\nuptime_in_seconds:%d\r\nuptime_in_days:%d\r\n",
			id, now.UnixMicro(), up/time.Second, up/(24*time.Hour))},
		{"clients", fmt.Sprintf("# Clients\r\nconnected_clients:%d\r\n", client)},
		{"memory", "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"},
		{"persistence", "# Persistence\r\nloading:0\r\naof_enabled:1\r\n"},
		{"replication", "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:" + hexSHA1("replication "+id) + "\r\nsecond_repl_offset:-1\r\n"},
		{"commandstats", stats},
	}
	var b strings.Builder
	for _, s := range all {
		if wanted(s.name, sections) {
			if b.Len() > 0 {
				b.WriteString("\r\n")
			}
			b.WriteString(s.text)
		}
	}
	return b.String()
}

func wanted(name string, sections []string) bool {
	usual := name != "commandstats"
	for _, s := range sections {
		switch s := strings.ToLower(s); s {
		case name, "all", "everything":
			return true
		case "default":
			return usual
		}
	}
	return usual && len(sections) == 0
}

func hexSHA1(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// luaError matches miniredis's error of a script that fails while it runs. If there is no stack traceback, the script did
// not compile, and the text is already that of a real server.
var luaError = regexp.MustCompile(`(?s)^-ERR Error compiling script \(new function\): (?:[^:\s]*:(\d+): )?(.*?)\s+stack traceback:.*`)

var errorCode = regexp.MustCompile(`^[A-Z]+ `)

// scriptError turns miniredis's text for a script's error into that of Redis 7.0. Clients tell a WRONGTYPE from a NOPERM by
// the first word, which miniredis hides.
func scriptError(out, sha string) string {
	m := luaError.FindStringSubmatch(out)
	if m == nil {
		return out
	}
	line, text := m[1], m[2]
	if line == "" {
		line = "1"
	}
	if !errorCode.MatchString(text) {
		text = "ERR user_script:" + line + ": " + text
	}
	return fmt.Sprintf("-%s script: %s, on @user_script:%s.\r\n", text, sha, line)
}

func sha(args []string) string {
	if len(args) < 2 {
		return ""
	}
	if strings.HasPrefix(strings.ToUpper(args[0]), "EVALSHA") {
		return args[1]
	}
	return hexSHA1(args[1])
}
