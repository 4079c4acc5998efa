package redlock

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// What a Node is beyond the two methods that it must have, and how its code is called.

// A nodeKind is what a Node stands for.
type nodeKind uint8

const (
	kindUnknown   nodeKind = iota // it does not tell
	kindSingle                    // one server at a time
	kindCluster                   // a Redis Cluster: it places keys by their hash slots
	kindRing                      // several servers: it places keys by a hash of its own
	kindPipeliner                 // an auto-pipeliner, over a client or a cluster; a Ring has none
)

// The methods by which a Node is recognised, and not by its type: it may be a wrapper.
type (
	singleClient  interface{ Options() *redis.Options }
	clusterClient interface{ Options() *redis.ClusterOptions }
	ringClient    interface{ Options() *redis.RingOptions }
	withShards    interface { // a Ring and a cluster
		ForEachShard(ctx context.Context, f func(ctx context.Context, shard *redis.Client) error) error
	}
	withMasters interface { // a cluster
		ForEachMaster(ctx context.Context, f func(ctx context.Context, master *redis.Client) error) error
	}
)

// kindOf recognises a Node by its methods and by those of what it embeds. Of several
// kinds it is the one that needs the most care. A wrapper that keeps its client in an
// ordinary field and has no Options method is of unknown kind.
func kindOf(node Node) (kind nodeKind) {
	for v := range embedded(node) {
		t := v.Type()
		shards, masters := t.Implements(reflect.TypeFor[withShards]()), t.Implements(reflect.TypeFor[withMasters]())
		switch {
		case t.Implements(reflect.TypeFor[ringClient]()), shards && !masters:
			return kindRing
		case t.Implements(reflect.TypeFor[clusterClient]()), masters:
			kind = kindCluster
		case kind != kindUnknown:
		case t.Implements(reflect.TypeFor[singleClient]()):
			kind = kindSingle
		case t == reflect.TypeFor[*redis.AutoPipeliner]():
			kind = kindPipeliner
		}
	}
	return kind
}

// embedded yields a Node, and what it embeds: an interface there hides methods of the
// client in it.
func embedded(node Node) iter.Seq[reflect.Value] {
	return func(yield func(reflect.Value) bool) { embeddedIn(reflect.ValueOf(node), maxWrappers, yield) }
}

// maxWrappers bounds how deep embedded looks: a wrapper may embed itself.
const maxWrappers = 8

func embeddedIn(v reflect.Value, depth int, yield func(reflect.Value) bool) (more bool) {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if !v.IsValid() || depth == 0 {
		return true
	}
	if !yield(v) {
		return false
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return true
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Anonymous && !embeddedIn(v.Field(i), depth-1, yield) {
			return false
		}
	}
	return true
}

// nodeName is the address by which errors call a node, or its number.
func nodeName(i int, node Node) string {
	if addr := clientAddr(node); addr != "" {
		return addr
	}
	for v := range embedded(node) {
		if v.Kind() != reflect.Pointer || !v.CanInterface() {
			continue // a copy of a struct would copy its locks
		}
		if addr := clientAddr(v.Interface()); addr != "" {
			return addr
		}
	}
	return fmt.Sprintf("node%d", i+1)
}

// clientAddr is the address in a client's options; "": it tells none.
func clientAddr(client any) (addr string) {
	var failed error
	defer caught(&failed)
	switch c := client.(type) {
	case singleClient:
		if o := c.Options(); o != nil {
			return o.Addr
		}
	case clusterClient:
		if o := c.Options(); o != nil && len(o.Addrs) > 0 {
			return o.Addrs[0]
		}
	case ringClient:
		if o := c.Options(); o != nil && len(o.Addrs) > 0 {
			var names []string
			for name := range o.Addrs {
				names = append(names, name)
			}
			return slices.Min(names)
		}
	}
	return ""
}

// advise adds to what a server said what to do about it, where it says that it is no
// independent master. Time does not heal that; but a cluster's client follows a MOVED
// itself, as a wrapper of unknown kind may, and what it lets through passes.
func (k nodeKind) advise(e *nodeError) *nodeError {
	if e == nil || k == kindCluster {
		return e
	}
	text, heals := e.text, e.heals
	switch code, _, _ := strings.Cut(text, " "); code {
	case "MOVED", "CROSSSLOT":
		text, heals = text+": "+inCluster, k != kindSingle
	case "ASK", "TRYAGAIN", "CLUSTERDOWN":
		text += ": " + inCluster
	case "READONLY":
		text = strings.TrimSuffix(text, ".") + ": pass its master"
	default:
		return e
	}
	return &nodeError{text: text, cause: e.cause, heals: heals}
}

const inCluster = "a node of a Redis Cluster: pass independent masters, or one ClusterClient as one node"

// A panicError is a panic in a Node's code. It wraps nothing, whatever the value of the
// panic is: it says neither that a server answered nor that nothing was sent.
type panicError struct {
	value string
	at    string // file and line
}

func (e *panicError) Error() string {
	return "client panicked: " + e.value + " (" + e.at + ")"
}

// caught is deferred around every call into a Node's code in a goroutine of ours, where a
// panic would end the process for the fault of one node. It counts as a call that failed,
// and that may have been executed. Nothing of ours is locked there. A panic in a goroutine
// that a client starts by itself cannot be caught.
func caught(err *error) {
	v := recover()
	if v == nil {
		return
	}
	e := &panicError{value: quoteValue(fmt.Sprint(v)), at: "unknown"}
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") {
			e.at = fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
			break
		}
	}
	*err = e
}
