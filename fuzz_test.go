package redlock

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"

	"github.com/seed-ce352c9b/redlock/internal/wire/wiretest"
)

// Everything that reads bytes from outside is fed with any: keys from the caller,
// addresses from its configuration, replies, errors, values and registers from
// servers, proxies and other clients of the same keys. Each runs on its seeds in
// go test, and on more with -fuzz.

func FuzzClientOptions(f *testing.F) {
	for _, url := range []string{"", "h:1", ":1", "redis://h:1", "rediss://h:1/3", "unix:///a", "unix://a", "redis://u:%p@h:1", "http://h", "://", "redis://", "[::1]:7", "redis://[::1", "a@b:1", "redis://u@h:1?db=x"} {
		f.Add(url, int64(0))
	}
	for _, c := range passwordURLs {
		f.Add(c.url, int64(time.Second))
	}
	f.Fuzz(func(t *testing.T, url string, timeout int64) {
		o, err := clientOptions(url, time.Duration(timeout))
		if err != nil {
			if o != nil {
				t.Errorf("%q: options come with the error %v", url, err)
			}
			return
		}
		if o.MaxRetries != -1 || o.DialerRetries != 1 || !o.ContextTimeoutEnabled || o.PoolSize != openPool {
			t.Errorf("%q: got %+v", url, o)
		}
		if o.Addr == "" || o.DialTimeout != dialTimeout || o.ReadTimeout < dialTimeout || o.WriteTimeout < dialTimeout || o.PoolTimeout < dialTimeout {
			t.Errorf("%q: address %q, dial %v, read %v", url, o.Addr, o.DialTimeout, o.ReadTimeout)
		}
	})
}

// FuzzPasswords puts a secret into addresses of all forms, none of which may show.
func FuzzPasswords(f *testing.F) {
	for _, tail := range []string{"h:1", "h:port", "h:1/nonsense", "h:1?nonsense=1", "", "h"} {
		f.Add("redis://user:", "hunter2", tail)
		f.Add("redis://:", "a:b", tail)
		f.Add("user:", "hunter2", tail)
		f.Add("http://:", "hunter2", tail)
	}
	f.Fuzz(func(t *testing.T, head, secret, tail string) {
		if !plainPassword(secret) {
			t.Skip() // see TestPasswordsAreNeverShown for those that are no part of a URL
		}
		switch head { // the others are for the seeds above
		case "redis://user:", "redis://:", "rediss://user:", "unix://user:", "http://:", "user:":
		default:
			t.Skip()
		}
		url := head + secret + "@" + tail
		if strings.Contains(head+tail, secret) || quotedAway(tail) || strings.Contains("redis: redlock database number scheme port want unix userinfo invalid", secret) {
			t.Skip() // it would be no secret, or the quoting of the rest hides it
		}
		if _, err := clientOptions(url, 0); err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: the password %q is shown in %q", url, secret, err)
		}
	})
}

// quotedAway reports whether a text looks different once it is quoted, as an error
// of net/url does with a whole URL, or ends the part of it that has the password.
func quotedAway(s string) bool {
	return strconv.Quote(s) != `"`+s+`"` || strings.Contains(s, "#")
}

// plainPassword reports whether a password can stand in a URL as it is.
func plainPassword(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~!$&'()*+,;=", r) {
			return false
		}
	}
	return len(s) >= 4
}

// FuzzStatus has nodes say anything to an inspection, a look, a turn.
func FuzzStatus(f *testing.F) {
	for k := range byte(4) {
		f.Add([]byte{k, 9, 4, 4, 1, 1, 99, 4, 4, 9, 1, 4, 2, 0})
		f.Add([]byte{k, 9, 3, 4, 4, 1, 254, 4, 4, 0, 9, 3, 4, 4, 1, 255, 4, 4, 0})
		f.Add([]byte{k, 9, 3, 3, 200, 1, 254, 4, 4})
		f.Add([]byte{k, 1, 254, 0, 1, 255, 0, 1, 5, 0})
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		const nodes = 3
		d := &wiretest.Feed{Bytes: b}
		l, err := New(Options{}, &deafNode{}, &deafNode{}, &deafNode{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		name, _ := wire.NameKey("", "jobs/42")
		q := []wire.Question{
			wire.InspectQuestion(name), wire.LookQuestion(name),
			wire.TurnQuestion(nil, name, wiretest.Mine, time.Second, 7, wiretest.Theirs, 1800000000000001), wire.WaitQuestion(name, wiretest.Theirs, false),
		}[d.Byte()%4]
		k := q.Kind
		bl := l.newQuorumCall(OpInspect, name, q, l.now(), allAnswered)
		values := make(map[string]int)
		for i := range bl.calls {
			cmds := []wire.Command{wire.NewCommand([]any{"x"}), wire.NewCommand([]any{"x"})}
			if v := d.Value(0); v != nil {
				cmds[0].SetVal(v)
			}
			if err := d.Err(); err != nil {
				cmds[0].SetErr(err)
			}
			c := &bl.calls[i]
			c.Reply = c.Q.Read(cmds, false, nil)
			c.Took = time.Duration(i+1) * time.Millisecond
			if c.Reply.Answer == wire.Yes && k == wire.AskInspect && !c.Reply.Missing {
				values[c.Reply.Holder]++
			}
			bl.Vote(c)
		}
		st := bl.status()
		if len(st.Nodes) != nodes || st.Fence < 0 || st.Fence >= wire.MaxToken {
			t.Errorf("got %+v", st)
		}
		if k == wire.AskInspect && st.Held != (values[st.Value] >= 2) {
			t.Errorf("held %v by %q, which %d of %d nodes say", st.Held, st.Value, values[st.Value], nodes)
		}
		bl.freeIn()
		if s := bl.standing(); s.Answered && k != wire.AskTurn && k != wire.AskWait {
			t.Errorf("a standing by kind %d: %+v", k, s)
		}
		for _, v := range st.Round.Votes {
			if text := v.String(); strings.ContainsAny(text, "\n\r\x00") {
				t.Errorf("a vote is shown as %q", text)
			}
		}
	})
}

// What is told of a channel that nobody waits on is nobody's.
func TestAnUnknownChannelIsIgnored(t *testing.T) {
	l, err := New(Options{}, &deafNode{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.queues.Announced(0, "x", "1 a")
	l.queues.Subscribed(0, "x", true)
	if n := len(l.queues.queues); n != 0 {
		t.Errorf("got %d queues, want none", n)
	}
}
