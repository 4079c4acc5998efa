package wire

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// A PanicError reports a panic in a Node's code. It wraps nothing, whatever the value of the
// panic: a panic shows neither that a server answered nor that nothing was sent.
type PanicError struct {
	value string
	at    string // file and line
}

func (e *PanicError) Error() string {
	return "client panicked: " + e.value + " (" + e.at + ")"
}

// RecoverTo turns a panic into a PanicError in *err. It is deferred around every call into a
// Node's code in a goroutine of this library, where a panic would end the process because
// of one node. The call counts as failed, and its commands as possibly executed. No lock
// of this library is held there. A panic in a goroutine that a client starts by itself
// cannot be recovered.
func RecoverTo(err *error) {
	v := recover()
	if v == nil {
		return
	}
	e := &PanicError{value: quoteValue(fmt.Sprint(v)), at: "unknown"}
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
