package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/seed-ce352c9b/redlock/internal/rapidseed" // the same cases each time
)

// clusterSlot is the slot of a key as the Redis Cluster specification words it,
// written anew: bit by bit, and with the tag found by a scan.
func clusterSlot(key string) int {
	hashed := key
	for open := 0; open < len(key); open++ {
		if key[open] != '{' {
			continue
		}
		for end := open + 1; end < len(key); end++ {
			if key[end] == '}' {
				if end > open+1 {
					hashed = key[open+1 : end]
				}
				break
			}
		}
		break // only the first { counts
	}
	crc := 0
	for _, b := range []byte(hashed) {
		for bit := 7; bit >= 0; bit-- {
			in := int(b)>>bit&1 ^ crc>>15
			crc = crc << 1 & 0xffff
			if in == 1 {
				crc ^= 0x1021
			}
		}
	}
	return crc % 16384
}

// slotOf is the slot by the library's own means.
func slotOf(key string) int {
	if tag, ok := hashTag(key); ok {
		key = tag
	}
	return int(crc16(key) % slots)
}

// siblings are all names that a lock has beside its own, the reserved one included.
func siblings(k *LockKey) []string {
	return []string{k.args.fence.(string), k.args.queue.(string), k.Channel}
}

var someKeys = []string{
	"jobs/42", "a", " ", "\x00", "\xff\xfe\r\n", "ключ",
	"{user1000}.following", "foo{bar}baz", "{tag}", "foo{}{bar}", "foo{{bar}}zap", "foo{bar}{zap}", // of the specification
	"{", "}", "{}", "}{", "{}x", "x{}", "a{b", "a}b", "}a{b}c", "{{", "}}", "{a}{b}", "{{a}b", "{\x00}", "{}{}",
	"a:fence", "b:queue", "c:release", ":fence", "{a:fence", "a}:fence", "x{a}:fence",
	strings.Repeat("k", MaxKeyBytes), "{" + strings.Repeat("k", MaxKeyBytes-2) + "}", "{}" + strings.Repeat("k", MaxKeyBytes-2),
}

func TestCRC16OfKnownVectors(t *testing.T) {
	for s, want := range map[string]uint16{"123456789": 0x31c3, "": 0, "A": 0x58e5, "foo": 0xaf96} {
		if got := crc16(s); got != want {
			t.Errorf("crc16(%q): got %#x, want %#x", s, got, want)
		}
	}
	for key, want := range map[string]int{"foo": 12182, "bar": 5061, "hello": 866, "123456789": 12739, "user1000": 3443, "{user1000}.following": 3443} {
		if got := slotOf(key); got != want {
			t.Errorf("slot of %q: got %d, want %d", key, got, want)
		}
	}
}

func TestTheHashTagIsWhatStandsInTheFirstBraces(t *testing.T) {
	for _, c := range []struct {
		key, tag string
		ok       bool
	}{
		{"{user1000}.following", "user1000", true},
		{"foo{}{bar}", "", false},
		{"foo{{bar}}zap", "{bar", true},
		{"foo{bar}{zap}", "bar", true},
		{"foo", "", false}, {"{", "", false}, {"}", "", false}, {"}{", "", false}, {"{}x", "", false}, {"a}b{c}", "c", true},
	} {
		if tag, ok := hashTag(c.key); tag != c.tag || ok != c.ok {
			t.Errorf("hashTag(%q): got %q, %v; want %q, %v", c.key, tag, ok, c.tag, c.ok)
		}
	}
}

func TestATagIsKnownForEverySlot(t *testing.T) {
	seen := make(map[string]bool, slots)
	for slot := range uint16(slots) {
		tag := tagFor(slot)
		if tag == "" || strings.ContainsAny(tag, "{}") || seen[tag] {
			t.Fatalf("slot %d: the tag %q is empty, has braces or is another slot's", slot, tag)
		}
		if got := clusterSlot("{" + tag + "}x"); got != int(slot) {
			t.Fatalf("slot %d: its tag %q hashes to %d", slot, tag, got)
		}
		seen[tag] = true
	}
}

type checker interface{ Errorf(string, ...any) }

// checkNames states what holds of the names of every key: they are in its slot, and none of them is accepted as a key.
func checkNames(t checker, k *LockKey, prefix, key string) {
	if k.Full != prefix+key || k.Key != key {
		t.Errorf("%q is stored under %q and shown as %q", Clip(prefix+key), Clip(k.Full), Clip(k.Key))
	}
	want := clusterSlot(k.Full)
	if got := slotOf(k.Full); got != want {
		t.Errorf("%q: its own slot: got %d, want %d", Clip(k.Full), got, want)
	}
	for _, s := range siblings(k) {
		if got := clusterSlot(s); got != want {
			t.Errorf("%q: slot of %q: got %d, want %d", Clip(k.Full), Clip(s), got, want)
		}
		if _, err := NameKey("", s); err == nil || !reserved(s) {
			t.Errorf("%q, a name beside %q, is accepted as a key", Clip(s), Clip(k.Full))
		}
	}
}

// Attack 92.
func TestTheNamesOfALockAreInItsHashSlot(t *testing.T) {
	check := func(t checker, prefix, key string) {
		if k, err := NameKey(prefix, key); err != nil {
			t.Errorf("%q is refused: %v", Clip(prefix+key), err)
		} else {
			checkNames(t, k, prefix, key)
		}
	}
	for _, key := range someKeys {
		check(t, "", key)
	}
	check(t, "app:", "jobs/42")
	check(t, "{app}:", "jobs/42")
	check(t, "{app", "}jobs/42")
	check(t, "{", "x")
	rapid.Check(t, func(t *rapid.T) {
		if key := drawKey(t, "key"); !reserved(key) {
			check(t, "", key)
		}
	})
}

// drawKey favours what the names beside a key are made of.
func drawKey(t *rapid.T, label string) string {
	part := rapid.OneOf(rapid.SampledFrom([]string{"{", "}", "{}", ":", fenceSuffix, queueSuffix, releaseSuffix, "a", "b", "0", "\x00"}), rapid.StringN(0, 3, 8))
	var b strings.Builder
	for _, s := range rapid.SliceOfN(part, 1, 8).Draw(t, label) {
		b.WriteString(s)
	}
	if b.Len() == 0 {
		return "k"
	}
	return b.String()
}

func TestPlainKeysHaveReadableNamesBesideThem(t *testing.T) {
	k, err := NameKey("app:", "jobs/42")
	if err != nil {
		t.Fatal(err)
	}
	if k.Key != "jobs/42" || k.Full != "app:jobs/42" {
		t.Errorf("got %q, stored under %q", k.Key, k.Full)
	}
	all := []any{k.args.full, k.args.fence, k.args.queue, k.args.channel, k.Channel}
	want := []any{"app:jobs/42", "{app:jobs/42}:fence", "{app:jobs/42}:queue", "{app:jobs/42}:release", "{app:jobs/42}:release"}
	if !slices.Equal(all, want) {
		t.Errorf("got %q, want %q", all, want)
	}
	k, _ = NameKey("", "{user}.following")
	if got, want := k.args.fence, "{user}:{user}.following:fence"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNoTwoKeysShareAName(t *testing.T) {
	owner := make(map[string]string) // of each name, the key
	claim := func(t interface {
		checker
		Fatalf(string, ...any)
	}, owner map[string]string, key string) {
		k, err := NameKey("", key)
		if err != nil {
			return
		}
		for _, s := range append(siblings(k), k.Full) {
			if other, ok := owner[s]; ok && other != key {
				t.Fatalf("%q is a name of %q and of %q", Clip(s), Clip(other), Clip(key))
			}
			owner[s] = key
		}
		checkNames(t, k, "", key)
	}
	for _, key := range someKeys {
		claim(t, owner, key)
	}
	rapid.Check(t, func(t *rapid.T) {
		owner := make(map[string]string)
		for range 8 {
			claim(t, owner, drawKey(t, "key"))
		}
		// And what looks most like a sibling of a key: pieces of it.
		key := drawKey(t, "base")
		claim(t, owner, key)
		for _, s := range []string{"{" + key + "}", key + fenceSuffix, ":" + key, "{" + key + "}:" + key, sibling(key), strings.TrimPrefix(sibling(key), "{"), key + "}", "{" + key} {
			claim(t, owner, s)
		}
	})
}

// Attack 92.
func TestKeysThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, prefix, key string
		says              []string
	}{
		{"empty", "", "", []string{"empty key", `"jobs/42"`}},
		{"empty behind a prefix", "app:", "", []string{"empty key"}},
		{"64 KiB and a byte", "", strings.Repeat("k", MaxKeyBytes+1), []string{"has 65537 bytes", "at most 65536"}},
		{"64 KiB with a prefix", "p", strings.Repeat("k", MaxKeyBytes), []string{"has 65537 bytes", "at most 65536"}},
		{"one that looks like a fence register", "", "{jobs/42}:fence", []string{`"{jobs/42}:fence"`, "take another"}},
		{"one that looks like a queue", "", "{jobs/42}:queue", []string{`"{jobs/42}:queue"`, "take another"}},
		{"one that looks like a release channel", "", "{jobs/42}:release", []string{`"{jobs/42}:release"`, "take another"}},
		{"one that looks like a name beside a tagged key", "", "{a}:x{a}:fence", []string{"take another"}},
		{"one that only its prefix makes look so", "{app}:", "x:fence", []string{`"{app}:x:fence"`, "take another"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, err := NameKey(c.prefix, c.key)
			if err == nil {
				t.Fatalf("accepted as %q", Clip(k.Full))
			}
			for _, s := range append(c.says, "redlock: ") {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("got %q, want it to say %q", err, s)
				}
			}
			if len(err.Error()) > 1500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if k != nil {
				t.Errorf("names come with the error: %+v", k)
			}
		})
	}
}

// Attack 92.
func TestAKeyOf64KiBIsTheLongest(t *testing.T) {
	for _, prefix := range []string{"", "p", strings.Repeat("p", MaxKeyBytes-1)} {
		if _, err := NameKey(prefix, strings.Repeat("k", MaxKeyBytes-len(prefix))); err != nil {
			t.Errorf("%d bytes of prefix, 64 KiB in all: %v", len(prefix), err)
		}
	}
}

func TestNamesAreKeptForSoManyShortKeys(t *testing.T) {
	var n Names
	of := func(key string, fenced bool) any {
		k, err := n.Of("app:", key, fenced)
		if err != nil {
			t.Fatal(err)
		}
		if k.Key != key || k.Full != "app:"+key || k.Fenced != fenced {
			t.Fatalf("of %q, fenced %t: got the names of %q, %q, fenced %t", key, fenced, k.Key, k.Full, k.Fenced)
		}
		return k
	}
	name := func(key string) any {
		if of(key, false) == of(key, true) {
			t.Fatal("a lock with a fence and one without have the same names")
		}
		return of(key, true)
	}
	if name("a") != name("a") {
		t.Error("the names of a key were made twice in a row")
	}
	if long := strings.Repeat("x", maxNamedBytes); name(long) == name(long) {
		t.Error("the names of a long key are kept")
	}
	for i := range 3 * maxNames {
		name(fmt.Sprint(i))
		if kept := max(len(n.all), len(n.bare)); kept > maxNames {
			t.Fatalf("%d names are kept, want at most %d", kept, maxNames)
		}
	}
	if _, err := n.Of("", "", true); err == nil {
		t.Error("the empty key: no error")
	}
}
