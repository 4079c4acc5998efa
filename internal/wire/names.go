package wire

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The keys of a lock K. K itself has the holder's value, as a plain string, so that this
// library and other Redlock libraries exclude each other. Beside it, in the same hash slot
// of a Redis Cluster, are the fence register, the queue of waiters and the release channel.

const (
	fenceSuffix   = ":fence"
	queueSuffix   = ":queue"
	releaseSuffix = ":release"
	bootSuffix    = ":boot"
)

// MaxKeyBytes bounds a key including its prefix. A larger key would delay every batch to
// the node.
const MaxKeyBytes = 64 << 10

var suffixes = []string{fenceSuffix, queueSuffix, releaseSuffix, bootSuffix}

// A LockKey has the names of a lock on the nodes. It is shared by everything that deals with the
// lock, and all of it but one flag is immutable.
type LockKey struct {
	Key     string // as the caller passed it
	Full    string // with the prefix: the key that is the lock
	Channel string // where releases are announced
	Life    FenceLife

	// Fenced says that those who acquire the lock by this LockKey get a fencing token. The questions
	// of others leave the register alone, but for Adopt.
	Fenced bool

	released atomic.Bool // a lock was released by this LockKey before

	// The names as arguments of commands, converted to an interface once for all commands.
	args struct {
		full    any
		fence   any // the fence register: a sorted set with the member f, and notes of lua/adopt.lua
		queue   any // the queue of waiters, see lua/queue.lua
		channel any
	}
}

// NameKey checks a caller's key and derives the other names of the lock. It returns an
// error for a key that is empty, too long, or reserved.
func NameKey(prefix, key string) (*LockKey, error) {
	full := prefix + key
	switch {
	case key == "":
		return nil, fmt.Errorf("redlock: empty key: name what to lock, for example %q", "jobs/42")
	case len(full) > MaxKeyBytes:
		return nil, fmt.Errorf("redlock: the key %q has %d bytes with its prefix, at most %d are allowed", Clip(key), len(full), MaxKeyBytes)
	case reserved(full):
		return nil, fmt.Errorf("redlock: the key %q has the form of a name that this library uses beside a lock ({...}%s): take another", Clip(full), strings.Join(suffixes, ", {...}"))
	}
	base := sibling(full)
	all := base + fenceSuffix + base + queueSuffix + base + releaseSuffix // one piece of memory
	next := func(suffix string) (name string) {
		n := len(base) + len(suffix)
		name, all = all[:n], all[n:]
		return name
	}
	k := &LockKey{Key: key, Full: full, Fenced: true}
	k.args.full = full
	k.args.fence = next(fenceSuffix)
	k.args.queue = next(queueSuffix)
	k.Channel = next(releaseSuffix)
	k.args.channel = k.Channel
	return k, nil
}

// ReleasedBefore reports whether it was called before: mostly names are used again and again, or once.
func (k *LockKey) ReleasedBefore() bool { return k.released.Load() || k.released.Swap(true) }

// SharesLife reports whether the registers of all locks with ttls like this one live equally long, so
// that one script can give several of them their ttl; also if this lock has no register.
func (k *LockKey) SharesLife(ttl time.Duration) bool { return !k.Fenced || k.Life.isShared(ttl) }

// withFence returns the keys of a script that uses the lock and, if it is fenced, its register.
func (k *LockKey) withFence() []any {
	if !k.Fenced {
		return []any{k.args.full}
	}
	return []any{k.args.full, k.args.fence}
}

// withQueue returns the keys of a script that uses the lock, its register and its queue.
func (k *LockKey) withQueue() []any {
	return []any{k.args.full, k.args.fence, k.args.queue}
}

// reserved reports whether a key has the form of a name beside another lock.
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

// BootMark returns the key of the mark that a restart guard keeps on a node. It is one key
// for all locks under a prefix, named as if it were beside a lock.
func BootMark(prefix string) string { return sibling(prefix+"redlock") + bootSuffix }

// sibling returns the stem of the names beside a key, which is in the key's hash slot. It
// is "{K}" if K has no brace. A key with braces is hashed by its own tag or, if it has no
// usable one, as a whole; its stem is the key after its tag, or after a tag computed for
// its slot. Stems of different keys differ: only those of keys with braces have text after
// the first "}".
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

// HasBracesWithoutTag reports whether a key has a brace but no hash tag. The names beside
// such a key have a tag computed for Redis Cluster's slots, which other ways of sharding,
// such as a Ring's, do not follow.
func HasBracesWithoutTag(full string) bool {
	_, ok := hashTag(full)
	return !ok && strings.ContainsAny(full, "{}")
}

// hashTag returns the part of a key that Redis Cluster hashes instead of the whole: the text
// between the first "{" and the first "}" after it, if it is not empty.
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

// tagFor returns a short text that hashes to the slot. Its table takes about ten
// milliseconds to make, once, and only in processes that lock keys with lone braces.
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

// crc16 returns the CRC-16/XMODEM of s: polynomial 0x1021, starting at 0. (Redis Cluster
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

const (
	// maxNames and maxNamedBytes bound the names of locks that a Locker keeps: about two
	// megabytes. Beyond that all are forgotten, and made anew when they are used. Halved,
	// programs with thousands of busy keys make their names more often.
	maxNames      = 4096
	maxNamedBytes = 128
)

// A Names keeps the names of the locks that a Locker has used lately, so that they are
// not made anew for each acquisition. The zero value is empty.
type Names struct {
	Life FenceLife // of their registers; not to be changed once the first is made

	mu   sync.RWMutex
	all  map[string]*LockKey // by the caller's key
	bare map[string]*LockKey // the same, without a fence
}

// Of returns the names of a lock, with or without a fence, or an error for a key that cannot be
// locked.
func (n *Names) Of(prefix, key string, fenced bool) (*LockKey, error) {
	all := &n.all
	if !fenced {
		all = &n.bare
	}
	n.mu.RLock()
	name := (*all)[key]
	n.mu.RUnlock()
	if name != nil {
		return name, nil
	}
	long := len(prefix)+len(key) > maxNamedBytes
	if !long {
		key = strings.Clone(key) // which may be a part of something large
	}
	name, err := NameKey(prefix, key)
	if err != nil {
		return nil, err
	}
	name.Life, name.Fenced = n.Life, fenced
	if long {
		return name, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if *all == nil || len(*all) >= maxNames {
		*all = make(map[string]*LockKey)
	}
	(*all)[name.Key] = name
	return name, nil
}
