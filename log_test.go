package redlock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"
	"github.com/seed-ce352c9b/redlock/internal/wire/wiretest"
)

// What can be logged, each with what slog's handlers, JSON and package fmt show of it: labels and
// words, and no value. Package fmt calls no methods of what is in an unexported field, and prints
// what a pointer there points to if the verb is not for pointers.
func TestLogsShowLabelsAndWordsAndNoValue(t *testing.T) {
	const secret = "c2VjcmV0LXRva2Vu"
	foreign := ValueOf(secret)
	ours := ValueOf(wiretest.ValueOf("web-1"))
	stored := ours.Secret()
	lock := &Lock{l: &Locker{}, name: &wire.LockKey{Key: "k"}, value: &stored, fence: 7}
	vote := Vote{Node: "a", Answer: AnswerNo, Value: ours, Took: ms}
	failed := Vote{Node: "b", Answer: AnswerUnknown, Err: errors.New("timeout 50ms"), Took: 50 * ms}
	round := Round{Op: OpAcquire, Key: "k", Need: 2, Votes: []Vote{vote, failed}, Start: time.Unix(0, 0).UTC(), Took: 50 * ms}
	lost := &QuorumError{Round: Round{Op: OpAcquire, Key: "k", Need: 1, Votes: []Vote{vote}}, Err: ErrHeld}
	node := NodeStatus{Node: "a", Value: foreign, Left: -1, Fence: 3}
	status := Status{Key: "k", Held: true, Value: ours, Holder: "web-1", Left: 2 * ms, Fence: 3, Queue: []string{"web-2"}, Nodes: []NodeStatus{node}, Round: round}
	event := Event{Kind: EventLost, Lock: lock, Err: lost, Held: 2 * ms, Left: -ms}

	const text = `redlock: acquire "k": held by web-1 (1 of 1 votes needed; a held)`
	quoted := strings.ReplaceAll(text, `"`, `\"`)
	const roundJSON = `{"op":"acquire","key":"k","need":2,"votes":[{"node":"a","answer":"no","holder":"web-1","took":1000000},{"node":"b","answer":"unknown","err":"timeout 50ms","took":50000000}],"start":"1970-01-01T00:00:00Z","took":50000000}`
	for _, c := range []struct {
		v                   any
		text, json, printed string // by slog's text handler, in JSON (slog's handler shows the same), by %v
	}{
		{ours, `v=web-1`, `"web-1"`, `web-1`},
		{foreign, `v="another client"`, `"another client"`, `another client`},
		{ValueOf(""), `v=""`, `""`, ``},
		{[]Value{ours}, `v=[web-1]`, `["web-1"]`, `[web-1]`},
		{map[Value]Value{ours: foreign}, `v="map[web-1:another client]"`, `{"web-1":"another client"}`, `map[web-1:another client]`},
		{lock, `v.key=k v.fence=7`, `{"key":"k","fence":7}`, `lock "k", fence 7`},
		{Locks{lock}, `v="[lock \"k\", fence 7]"`, `[{"key":"k","fence":7}]`, `[lock "k", fence 7]`},
		{(*Lock)(nil), `v=<nil>`, `null`, `<nil>`},
		{vote, `v.node=a v.answer=no v.holder=web-1 v.took=1ms`, `{"node":"a","answer":"no","holder":"web-1","took":1000000}`, `a held`},
		{round, `v.op=acquire v.key=k v.need=2 v.votes="[a held b timeout 50ms]" v.start=1970-01-01T00:00:00.000Z v.took=50ms`, roundJSON, `acquire "k": 2 of 2 votes needed; a held, b timeout 50ms`},
		{[]*Round{&round}, ``, `[` + roundJSON + `]`, ``},
		{lost, `v="` + quoted + `"`, `"` + quoted + `"`, text},
		{fmt.Errorf("job: %w", lost), `v="job: ` + quoted + `"`, ``, `job: ` + text},
		{errors.Join(lost, lost), `v="` + quoted + `\n` + quoted + `"`, ``, text + "\n" + text},
		{status, `v.key=k v.held=true v.holder=web-1 v.left=2ms v.fence=3 v.queue=[web-2] v.nodes="[a held by another client, no ttl: not set by a lock library]"`,
			`{"key":"k","held":true,"holder":"web-1","left":2000000,"fence":3,"queue":["web-2"],"nodes":[{"node":"a","holder":"another client","fence":3}]}`,
			`"k" held by web-1, 2ms left, fence 3 (a held by another client, no ttl: not set by a lock library)`},
		{node, `v.node=a v.holder="another client" v.fence=3`, `{"node":"a","holder":"another client","fence":3}`, `a held by another client, no ttl: not set by a lock library`},
		{NodeStatus{Node: "b", Err: errors.New("NOAUTH")}, `v.node=b v.fence=0 v.err=NOAUTH`, `{"node":"b","fence":0,"err":"NOAUTH"}`, `b NOAUTH`},
		{NodeHealth{Node: "a", State: NodeDown, Err: errors.New("refused"), CleanUps: 2}, `v.node=a v.state=down v.err=refused v.clean_ups=2`, `{"node":"a","state":"down","err":"refused","clean_ups":2}`, ``},
		{event, `v.kind=lost v.lock.key=k v.lock.fence=7 v.err="` + quoted + `" v.held=2ms v.left=-1ms`, `{"kind":"lost","lock":{"key":"k","fence":7},"err":"` + quoted + `","held":2000000,"left":-1000000}`, ``},
		{Event{Kind: EventNodeUp, Node: "a", Down: ms}, `v.kind="node up" v.node=a v.down=1ms`, `{"kind":"node up","node":"a","down":1000000}`, ``},
		{Call{Method: "Extend", Key: "k", Lock: lock}, ``, ``, ``},
		{&struct{ *Lock }{lock}, ``, ``, `lock "k", fence 7`},
		{OpRaise, `v=raise`, `"raise"`, `raise`},
		{AnswerUnknown, `v=unknown`, `"unknown"`, `unknown`},
		{EventNodeMute, `v="node mute"`, `"node mute"`, `node mute`},
		{NodeQuarantined, `v=quarantined`, `"quarantined"`, `quarantined`},
	} {
		shows := func(how, got, want string) {
			t.Helper()
			if want != "" && got != want {
				t.Errorf("%T by %s:\ngot  %s\nwant %s", c.v, how, got, want)
			}
			for _, part := range []string{ours.Secret(), ours.Secret()[len("web-1:"):], fmt.Sprintf("%x", ours.Secret()), secret, fmt.Sprintf("%x", secret)} {
				if strings.Contains(strings.ToLower(got), strings.ToLower(part)) {
					t.Errorf("%T by %s shows the value %s: %s", c.v, how, part, got)
				}
			}
		}
		logged := func(handler func(*bytes.Buffer, *slog.HandlerOptions) slog.Handler) string {
			var b bytes.Buffer
			only := &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
				if len(groups) == 0 && a.Key != "v" {
					return slog.Attr{}
				}
				return a
			}}
			slog.New(handler(&b, only)).Info("", "v", c.v)
			return strings.TrimSpace(b.String())
		}
		shows("slog's text handler", logged(func(b *bytes.Buffer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(b, o) }), c.text)
		object := ""
		if c.json != "" {
			object = `{"v":` + c.json + `}`
		}
		shows("slog's JSON handler", logged(func(b *bytes.Buffer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(b, o) }), object)
		got, err := json.Marshal(c.v)
		if err != nil {
			t.Errorf("%T in JSON: %v", c.v, err)
		}
		shows("encoding/json", string(got), c.json)
		shows("%v", fmt.Sprintf("%v", c.v), c.printed)
		pointer := reflect.New(reflect.TypeOf(c.v))
		pointer.Elem().Set(reflect.ValueOf(c.v))
		type unexported struct{ v any }
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"} {
			shows(verb, fmt.Sprintf(verb, c.v), "")
			shows(verb+" in an unexported field", fmt.Sprintf(verb, unexported{c.v}), "")
			shows(verb+" in an unexported field of a pointer", fmt.Sprintf(verb, &unexported{c.v}), "")
			shows(verb+" by a pointer in an unexported field", fmt.Sprintf(verb, unexported{pointer.Interface()}), "")
		}
	}
	if got, want := fmt.Sprintf("%#v", lock), fmt.Sprintf("%#v", lock.String()); got != want { // which are not its fields: they need a mutex
		t.Errorf("a lock by %%#v: got %s, want %s", got, want)
	}
}
