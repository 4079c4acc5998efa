package wire

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// A PanicError is a panic in a Node's code. It wraps nothing, whatever the value of the
// panic is: it says neither that a server answered nor that nothing was sent.
type PanicError struct {
	value string
	at    string // file and line
}

func (e *PanicError) Error() string {
	return "client panicked: " + e.value + " (" + e.at + ")"
}

// caught is deferred around every call into a Node's code in a goroutine of ours, where a
// panic would end the process for the fault of one node. It counts as a call that failed,
// and that may have been executed. Nothing of ours is locked there. A panic in a goroutine
// that a client starts by itself cannot be caught.
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
