package redlock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Everything that reads bytes from outside is fed with any: keys from the caller,
// addresses from its configuration, replies, errors, values and registers from
// servers, proxies and other clients of the same keys. Each runs on its seeds in
// go test, and on more with -fuzz.

// Attack 92.
func FuzzNameKey(f *testing.F) {
	for _, key := range someKeys {
		if len(key) < 1000 {
			f.Add("", key)
			f.Add("app:", key)
			f.Add(key, key)
		}
	}
	f.Add("", "{jobs/42}:fence")
	f.Add("{", "}:queue")
	f.Fuzz(func(t *testing.T, prefix, key string) {
		k, err := nameKey(prefix, key)
		if err != nil {
			if k != nil || !strings.HasPrefix(err.Error(), "redlock: ") || len(err.Error()) > 2000 {
				t.Fatalf("%q: got %+v, %v", prefix+key, k, err)
			}
			return
		}
		if k.full != prefix+key || k.key != key {
			t.Fatalf("%q: got %+v", prefix+key, k)
		}
		for _, s := range siblings(k) {
			if clusterSlot(s) != clusterSlot(k.full) {
				t.Errorf("%q is in another slot than %q", s, k.full)
			}
			if !reserved(s) {
				t.Errorf("%q beside %q would be accepted as a key", s, k.full)
			}
		}
		// The names tell the key, so no other key has them.
		stem, ok := strings.CutSuffix(k.args.fence.(string), fenceSuffix)
		back := strings.TrimSuffix(strings.TrimPrefix(stem, "{"), "}")
		if strings.ContainsAny(k.full, "{}") {
			_, back, ok = strings.Cut(stem, "}:")
		}
		if !ok || back != k.full {
			t.Errorf("%q names %q, want %q", k.args.fence, back, k.full)
		}
	})
}

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

// A feed makes reply values of bytes: the types that go-redis can give, nested.
type feed struct{ b []byte }

func (d *feed) byte() byte {
	if len(d.b) == 0 {
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *feed) text() string {
	n := min(int(d.byte()), len(d.b))
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *feed) word() (n uint64) {
	var w [8]byte
	d.b = d.b[copy(w[:], d.b):]
	return binary.LittleEndian.Uint64(w[:])
}

func (d *feed) value(depth int) any {
	switch d.byte() % 10 {
	case 0:
		return nil
	case 1:
		return int64(int8(d.byte()))
	case 2:
		return int64(d.word())
	case 3:
		return d.text()
	case 4:
		return [...]string{"OK", mine, theirs, "QUEUED", ""}[d.byte()%5]
	case 5:
		return math.Float64frombits(d.word())
	case 6:
		return d.byte()%2 == 0
	case 7:
		return said(d.text())
	case 8:
		return strconv.FormatInt(int64(d.word()), 10)
	}
	var list []any
	for n := d.byte() % 6; n > 0 && depth < 3; n-- {
		list = append(list, d.value(depth+1))
	}
	return list
}

func (d *feed) err() error {
	switch d.byte() % 8 {
	case 1:
		return redis.Nil
	case 2:
		return said(d.text())
	case 3:
		return io.EOF
	case 4:
		return readTimeout()
	case 5:
		return fmt.Errorf("wrapped: %w", misleading[int(d.byte())%len(misleading)])
	case 6:
		return said(nodeErrors[int(d.byte())%len(nodeErrors)].text)
	case 7:
		return refused()
	}
	return nil
}

// Attack 31.
func FuzzRead(f *testing.F) {
	for k := range byte(len(allKinds)) {
		f.Add([]byte{k, 0, 0, 1, 1, 1, 0, 0})                               // a nil reply and 1
		f.Add([]byte{k, 0, 1, 1, 0, 0, 0, 0})                               // 1
		f.Add([]byte{k, 0, 9, 2, 1, 2, 8, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0})    // {2, "a score"}
		f.Add([]byte{k, 0, 9, 3, 4, 2, 1, 255, 4, 4, 0, 0, 0})              // {value, -1, ""}
		f.Add([]byte{k, 1, 4, 0, 0, 1, 1, 0, 0})                            // OK to the plain form
		f.Add([]byte{k, 0, 0, 6, 16, 0, 6, 16, 6, 16})                      // errors of the node
		f.Add([]byte{k, 0, 0, 5, 1, 0, 5, 2, 5, 3})                         // errors that would mislead
		f.Add([]byte{k, 0, 9, 1, 9, 1, 9, 1, 9, 1, 1, 1, 0, 0, 0, 0})       // nested
		f.Add([]byte{k, 0, 9, 3, 1, 1, 1, 1, 1, 99, 0, 0})                  // {1, 1, a time}: our turn
		f.Add([]byte{k, 0, 9, 5, 1, 0, 4, 2, 1, 50, 1, 3, 1, 99, 0, 0})     // {0, a holder, left, before, a time}, but for its end
		f.Add([]byte{k, 0, 9, 3, 1, 254, 1, 3, 1, 99, 0, 0})                // {-2, before, a time}: a place
		f.Add([]byte{k, 0, 1, 254, 0, 0})                                   // -2
		f.Add([]byte{k, 0, 0, 0, 0, 0, 2, 9, 'W', 'R', 'O', 'N', 'G', 'P'}) // untouched
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &feed{b}
		k := allKinds[int(d.byte())%len(allKinds)]
		plain := d.byte()%2 == 1 && k == askAcquire
		first := got{d.value(0), d.err()}
		second := got{d.value(0), d.err()}
		exec := d.err()
		q := questionOf(k)
		r := q.read(commands(first, second), plain, exec)
		judged := r
		if k == askTurn { // it moves the register in the same step as it grants
			judged.fenced = false
			if list, _ := first.val.([]any); r.fenced && (first.err != nil || len(list) < 3 || list[0] != int64(1) || list[1] != int64(1)) {
				t.Errorf("fenced by %#v", first)
			}
		}
		checkReply(t, q, plain, judged)
		if k != askAcquire || r.answer != Yes {
			return
		}
		// A lock is granted by one answer in each form. (What the plain form takes for
		// it beyond "OK" is in TestWithoutGETOnlyOKGrantsALock.)
		if !plain && !errors.Is(first.err, redis.Nil) || plain && first.err != nil {
			t.Errorf("plain=%v: granted by %#v", plain, first)
		}
		if r.fenced && (second.err != nil || second.val != int64(1)) {
			t.Errorf("fenced by %#v", second)
		}
	})
}

// Attack 86.
func FuzzExplain(f *testing.F) {
	for _, c := range nodeErrors {
		f.Add(c.text, byte(0))
	}
	for i := range byte(5) {
		f.Add("i/o timeout", i)
	}
	f.Add("", byte(0))
	f.Add("ERR  script: ", byte(0))
	f.Fuzz(func(t *testing.T, text string, how byte) {
		var err error
		switch how % 5 {
		case 0:
			err = said(text)
		case 1:
			err = errors.New(text)
		case 2:
			err = fmt.Errorf("%s: %w", text, misleading[len(text)%len(misleading)])
		case 3:
			err = fmt.Errorf("%s: %w", text, said(text))
		case 4:
			err = fmt.Errorf("%s: %w", text, readTimeout())
		}
		e, told := explain(err)
		var re redis.Error
		if told != errors.As(err, &re) {
			t.Fatalf("%q: said=%v", err, told)
		}
		if !told && !e.heals {
			t.Errorf("%q: what happened on the way does not heal", err)
		}
		if told && len(text) < 200 && !strings.Contains(text, e.text) && !strings.HasPrefix(e.text, `"`) { // long ones are clipped, others quoted
			t.Errorf("%q: shown as %q", text, e.text)
		}
		for _, no := range misleading {
			if errors.Is(e, no) {
				t.Errorf("%q matches %v", err, no)
			}
		}
		for _, k := range allKinds {
			r := failure(k, err)
			if r.answer != Unknown || told && (r.stored != (k.stores() && !notExecuted(r.err.text)) || r.silent) || !told && r.sent && r.stored != k.stores() {
				t.Errorf("kind %d, %q: got %+v", k, err, r)
			}
		}
	})
}

func FuzzIntroduce(f *testing.F) {
	f.Add("# Server\r\nredis_version:7.0.15\r\nrun_id:0123abc\r\n")
	f.Add("run_id:\r\n")
	f.Add("run_id:a\x00\nrun_id:b")
	f.Add("\r\r\n\nrun_id: x ")
	f.Add("")
	f.Fuzz(func(t *testing.T, info string) {
		got := introduce(&commands(got{val: info})[0], new(command), nil)
		if got == nil {
			t.Fatalf("%q: an answer is taken for none", info)
		}
		if got.runID != strings.TrimSpace(got.runID) || strings.Contains(got.runID, "\n") || !strings.Contains(info, got.runID) {
			t.Errorf("%q: got the run_id %q", info, got.runID)
		}
		if got.runID != "" && !strings.Contains(info, "run_id:") {
			t.Errorf("%q: got the run_id %q", info, got.runID)
		}
	})
}

func FuzzLabelOf(f *testing.F) {
	for _, v := range []string{"", "x", ":", mine, theirs, valueOf(""), strings.Repeat(":", 37), strings.Repeat("-", 37), ":--------------------------------------", "\xff" + mine, "a\u202e" + mine} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, value string) {
		label := Label(value)
		if !strings.HasPrefix(value, label) {
			t.Fatalf("%q: got the label %q", value, label)
		}
		if !ours(value) && label != "" {
			t.Errorf("%q is not ours, and has the label %q", value, label)
		}
		if ours(value) && (len(value) != len(label)+1+uuidLen || value[len(label)] != ':') {
			t.Errorf("%q: the label is %q", value, label)
		}
		if v := value + ":" + mine[3:]; !ours(v) || Label(v) != value { // whatever the label
			t.Errorf("%q: the label is %q, want %q", v, Label(v), value)
		}
		shown := shownHolder(value)
		if !ours(value) && value != "" && shown != "another client" {
			t.Errorf("%q is shown as %q", value, shown)
		}
		if len(shown) > 4*203+2 || strings.ContainsFunc(shown, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q is shown as %q", value, shown)
		}
	})
}

// Attack 71.
func FuzzReadScore(f *testing.F) {
	for _, s := range []string{"0", "-1", "7.5", "1700000000123456", "9007199254740990", "9007199254740991", "9007199254740992", "inf", "-inf", "nan", "1e300", "1e999", "word", "", "0x1p10", "1_000", "+7", " 7"} {
		f.Add(s, uint64(0))
	}
	for _, x := range []float64{0, -1, maxToken, maxToken - 1, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64} {
		f.Add("", math.Float64bits(x))
	}
	f.Fuzz(func(t *testing.T, text string, bits uint64) {
		for _, v := range []any{text, math.Float64frombits(bits), int64(bits), []byte(text)} {
			score, e := readScore(v)
			if e == nil && (score < 0 || score >= maxToken) || e != nil && (score != 0 || e.heals) {
				t.Errorf("%#v: got %d, %v", v, score, e)
			}
			if e != nil && (!strings.HasPrefix(e.text, "fence register") || len(e.text) > 1200) {
				t.Errorf("%#v: got %q", v, e.text)
			}
			if x, ok := v.(float64); ok && e == nil && x > 0 && (float64(score) > x || float64(score)+1 <= x) {
				t.Errorf("%v is read as %d", x, score)
			}
			if x, ok := v.(int64); ok && e == nil && x > 0 && score != x {
				t.Errorf("%d is read as %d", x, score)
			}
			if _, ok := v.([]byte); ok && e == nil {
				t.Errorf("%#v is read as %d", v, score)
			}
		}
	})
}

// listening is a Locker with one waiter, who hears what is announced on the channel.
func listening(t testing.TB, nodes int) (l *Locker, r *room, channel string) {
	var all []Node
	for range nodes {
		all = append(all, &deafNode{})
	}
	l, err := New(Options{}, all...)
	if err != nil {
		t.Fatal(err)
	}
	e, err := l.errand(OpAcquire, "jobs/42", time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.waits.join(e)
	l.waits.next(&e.place) // its first try
	r = e.place.room
	l.waits.mu.Lock()
	defer l.waits.mu.Unlock()
	l.waits.listen(r)
	r.due, e.place.trying = false, false
	return l, r, r.channel
}

// FuzzAnnounced feeds a waiter with announcements: whoever makes them, it is woken only
// where a majority of the nodes names it as the first to be told of one value.
func FuzzAnnounced(f *testing.F) {
	f.Add([]byte("\x001 a\n\x011 a\n"))
	f.Add([]byte("\x002 a\n\x011 a\n\x021 a\n"))
	f.Add([]byte("\x00a\n\x01 \n\x021\n\x001 \n\x011 \n"))
	f.Add([]byte("\x001 a\n\x011 b\n\x021 c\n\x001 d\n\x011 e\n\x021 f\n\x001 g\n\x011 h\n\x021 i\n\x011 a\n"))
	f.Add([]byte("\xff1 \xff\x00\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		const nodes = 3
		l, r, channel := listening(t, nodes)
		defer l.Close()
		named := make(map[string]map[int]bool) // by value: who said that we are the first
		for line := range strings.SplitSeq(string(b), "\n") {
			if line == "" {
				continue
			}
			i, text := int(line[0])%nodes, line[1:]
			on := channel
			if line[0] > 200 {
				on = channel + "x" // somebody else's
			}
			l.waits.announced(i, on, text)
			nth, value, ok := strings.Cut(text, " ")
			if ok && nth == "1" && on == channel {
				if named[value] == nil {
					named[value] = make(map[int]bool)
				}
				named[value][i] = true
			}
			if r.due {
				if len(named[value]) < 2 || on != channel {
					t.Fatalf("woken by %q of node %d, of which %d nodes say that it is the first", text, i, len(named[value]))
				}
				r.due = false
			}
		}
		l.waits.hears(0, string(b), true) // a channel that it does not know
	})
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
		d := &feed{b}
		l, _, _ := listening(t, nodes)
		defer l.Close()
		name, _ := nameKey("", "jobs/42")
		k := []kind{askInspect, askLook, askTurn, askWait}[d.byte()%4]
		bl := l.newBallot(OpInspect, name, *questionOf(k), l.now(), allIn)
		values := make(map[string]int)
		for i := range bl.calls {
			g := got{d.value(0), d.err()}
			c := &bl.calls[i]
			c.rep = c.q.read(commands(g, got{}), false, nil)
			c.took = time.Duration(i+1) * time.Millisecond
			if c.rep.answer == Yes && k == askInspect && !c.rep.missing {
				values[c.rep.holder]++
			}
			bl.vote(c)
		}
		st := bl.status()
		if len(st.Nodes) != nodes || st.Fence < 0 || st.Fence >= maxToken {
			t.Errorf("got %+v", st)
		}
		if k == askInspect && st.Held != (values[st.Value] >= 2) {
			t.Errorf("held %v by %q, which %d of %d nodes say", st.Held, st.Value, values[st.Value], nodes)
		}
		bl.left()
		if s := bl.standing(); s.answered && k != askTurn && k != askWait {
			t.Errorf("a standing by kind %d: %+v", k, s)
		}
		for _, v := range st.Round.Votes {
			if text := v.String(); strings.ContainsAny(text, "\n\r\x00") {
				t.Errorf("a vote is shown as %q", text)
			}
		}
	})
}
