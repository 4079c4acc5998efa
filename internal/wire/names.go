package wire

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// The keys of a lock K: K itself holds the holder's value, as a plain string, so
// that other Redlock libraries exclude us and we them. Beside it, in the same
// hash slot of a Redis Cluster, stand the fence register, the queue of
// waiters and the release channel.

const (
	fenceSuffix   = ":fence"
	queueSuffix   = ":queue"
	expirySuffix  = ":queue:expiry"
	releaseSuffix = ":release"
	bootSuffix    = ":boot"
)

// MaxKeyBytes bounds a key with its prefix: a larger one would hold up
// everybody's batch to the node.
const MaxKeyBytes = 64 << 10

var suffixes = []string{fenceSuffix, queueSuffix, expirySuffix, releaseSuffix, bootSuffix}

// LockKey is what the nodes know a lock by. It does not change; all who deal with the
// lock share it.
type LockKey struct {
	Key     string // as the caller calls it
	Full    string // with the prefix: the lock itself
	Channel string // where releases are announced

	// The names as commands take them: put into an interface once, and not by each.
	args struct {
		full    any
		fence   any // the fence register: a sorted set of f and lua/adopt.lua's notes
		queue   any // the queue of waiters, by their tickets
		expiry  any // and when each of their places is over
		channel any
	}
}

// NameKey checks a caller's key and derives the names beside it.
func NameKey(prefix, key string) (*LockKey, error) {
	full := prefix + key
	switch {
	case key == "":
		return nil, fmt.Errorf("redlock: the key is empty: name what is locked, such as %q", "jobs/42")
	case len(full) > MaxKeyBytes:
		return nil, fmt.Errorf("redlock: the key %q has %d bytes with its prefix: at most %d", Clip(key), len(full), MaxKeyBytes)
	case reserved(full):
		return nil, fmt.Errorf("redlock: the key %q looks like a name that this library keeps beside locks ({...}%s): take another", Clip(full), strings.Join(suffixes, ", {...}"))
	}
	base := sibling(full)
	all := base + fenceSuffix + base + queueSuffix + base + expirySuffix + base + releaseSuffix // one piece of memory
	next := func(suffix string) (name string) {
		n := len(base) + len(suffix)
		name, all = all[:n], all[n:]
		return name
	}
	k := &LockKey{Key: key, Full: full}
	k.args.full = full
	k.args.fence = next(fenceSuffix)
	k.args.queue = next(queueSuffix)
	k.args.expiry = next(expirySuffix)
	k.Channel = next(releaseSuffix)
	k.args.channel = k.Channel
	return k, nil
}

// withQueue is the keys of a script that minds the lock, its register and its queue.
func (k *LockKey) withQueue() []any {
	return []any{k.args.full, k.args.fence, k.args.queue, k.args.expiry}
}

// reserved reports whether a key could be one of ours beside another lock.
func reserved(full string) bool {
	if !strings.HasPrefix(full, "{") || !strings.Contains(full, "}") {
		return false
	}
	for _, suffix := range suffixes {
		if strings.HasSuffix(full, suffix) {
			return true
		}
	}
	return false
}

// BootMark is where a restart guard keeps which server a node is, and since when. It
// is one key for all locks under a prefix, named as if it stood beside a lock.
func BootMark(prefix string) string { return sibling(prefix+"redlock") + bootSuffix }

// sibling is the stem of the names beside a key, in the key's hash slot: "{K}"
// where K has no brace. A key with braces is hashed by its own tag or, where it
// has no usable one, as a whole; then its tag, or one computed for its slot, goes
// before it. Stems of different keys differ: only those of keys with braces have
// text after the first "}".
func sibling(full string) string {
	if !strings.ContainsAny(full, "{}") {
		return "{" + full + "}"
	}
	tag, ok := hashTag(full)
	if !ok {
		tag = tagFor(crc16(full) % slots)
	}
	return "{" + tag + "}:" + full
}

// SplitBraces reports a key with braces but no tag: the names beside it are hashed
// by a tag computed for Redis Cluster's slots.
func HasBracesWithoutTag(full string) bool {
	_, ok := hashTag(full)
	return !ok && strings.ContainsAny(full, "{}")
}

// hashTag is the part of a key that Redis Cluster hashes instead of the whole:
// what stands between the first "{" and the first "}" after it, if anything does.
// (Redis Cluster specification, Hash tags.)
func hashTag(key string) (string, bool) {
	i := strings.IndexByte(key, '{')
	if i < 0 {
		return "", false
	}
	n := strings.IndexByte(key[i+1:], '}')
	if n <= 0 {
		return "", false
	}
	return key[i+1 : i+1+n], true
}

const slots = 16384

// tagFor is a short text that hashes to the slot. The table costs some ten
// milliseconds once, and only whoever locks keys with lone braces pays for it.
var tagFor = func() func(slot uint16) string {
	table := sync.OnceValue(func() *[slots]string {
		var t [slots]string
		for i, missing := 0, slots; missing > 0; i++ {
			s := strconv.Itoa(i)
			if p := &t[crc16(s)%slots]; *p == "" {
				*p = s
				missing--
			}
		}
		return &t
	})
	return func(slot uint16) string { return table()[slot] }
}()

// crc16 is CRC-16/XMODEM: polynomial 0x1021, starting at 0. (Redis Cluster
// specification, Keys distribution model.)
func crc16(s string) uint16 {
	var crc uint16
	for i := 0; i < len(s); i++ {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
