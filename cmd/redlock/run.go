package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// run executes the subcommand run and returns the exit status.
func run(args []string) int {
	c, err := parseRun(args, os.Getenv)
	if err != nil {
		return badFlags(err, "run", runUsage)
	}
	// Checked before the lock is acquired: waiting for a command that does not exist is useless.
	path, err := exec.LookPath(c.argv[0])
	if err != nil {
		return cannotStart(c.argv[0], err)
	}
	locker, err := redlock.Open(redlock.Options{RestartGuard: c.guard, Grace: max(c.grace, killLead(c.ttl))}, c.nodes...)
	if err != nil {
		complainOf(err)
		return exitUsage
	}
	defer locker.Close()

	signals := make(chan os.Signal, 16)
	for _, s := range forwardedSignals {
		// Notify would override what nohup, or a shell for its background jobs, has set.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	lock, status := c.acquire(locker, signals)
	if lock == nil {
		return status
	}
	return c.hold(lock, path, signals)
}

// cannotStart reports that the command cannot be started and returns the exit status.
func cannotStart(name string, err error) int {
	status := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		status = exitNotFound
	}
	var e *exec.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	complain("run: %s: %v", name, err)
	return status
}

// errWaitExpired is the cause with which -wait cancels the acquisition.
var errWaitExpired = errors.New("-wait expired")

// acquire acquires the lock, or returns nil and the exit status. A signal cancels it.
func (c runConfig) acquire(locker *redlock.Locker, signals <-chan os.Signal) (*redlock.Lock, int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.wait > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, c.wait, errWaitExpired)
		defer stop()
	}
	var opts []redlock.AcquireOption
	if c.label != "" {
		opts = append(opts, redlock.WithLabel(c.label))
	}
	var lock *redlock.Lock
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		lock, err = c.take(ctx, locker, opts)
	}()
	var sig os.Signal
	select {
	case sig = <-signals:
		cancel()
		<-done
	case <-done:
		// A signal that arrived at the same moment ends the run here: it must not be left
		// to a command that has not even been started.
		select {
		case sig = <-signals:
		default:
		}
	}
	switch {
	case sig != nil:
		if lock != nil {
			lock.Release(context.Background())
		}
		return nil, exitSignal + signalNumber(sig)
	case err != nil:
		complainOf(err)
		return nil, exitStatusOf(err)
	}
	return lock, 0
}

// take acquires the lock, and returns an error if two names in the list of nodes turn out
// to be one server. That is known only when both names have replied, and the first grant
// of a Locker, the only one here, does not wait for all replies. Such a grant is sound,
// but it rests on fewer servers than intended. So take inspects all nodes while it
// acquires, and waits a little longer for those that have not replied by then.
//
// It also returns an error if redlock was started under the lock that it wants, and would wait
// for its own end. A process that outlived that lock, or uses other nodes, finds another value
// there. So a process that knows a value of an enclosing run inspects the nodes first.
func (c runConfig) take(ctx context.Context, locker *redlock.Locker, opts []redlock.AcquireOption) (*redlock.Lock, error) {
	known := make(chan error, 1)
	inspect := func() redlock.Value {
		s, err := locker.Inspect(ctx, c.key)
		known <- err
		return s.Value
	}
	if len(c.under) == 0 {
		go inspect()
	} else if slices.Contains(c.under, hashOf(inspect().Secret())) {
		return nil, fmt.Errorf("redlock: run %q: redlock itself runs under the lock %q, and would wait for itself: start the command without redlock run, or use another key", c.key, c.key)
	}
	acquire := locker.Acquire
	if c.try {
		acquire = locker.TryAcquire
	}
	start := time.Now()
	lock, err := acquire(ctx, c.key, c.ttl, opts...)
	if err != nil {
		return nil, err
	}
	longer := time.NewTimer(min(max(10*time.Since(start), identifyWaitMin), identifyWaitMax))
	defer longer.Stop()
	select {
	case err = <-known:
	case <-longer.C:
	case <-ctx.Done():
	}
	var q *redlock.QuorumError
	if err == nil || errors.As(err, &q) || ctx.Err() != nil { // the nodes that did not reply are a minority
		return lock, nil
	}
	lock.Release(context.Background())
	return nil, err
}

// These bound how long take waits, after it has acquired the lock, for nodes that have not
// yet said which server they are. Within the bounds it waits ten times as long as the
// acquisition took. This is the time that a hung node adds to the start of a run. If the
// factor is halved, a node that takes more than five times as long as the others may
// remain undetected as a duplicate.
const (
	identifyWaitMin = 50 * time.Millisecond
	identifyWaitMax = 500 * time.Millisecond
)

// exitStatusOf returns the exit status for an error of acquiring the lock.
func exitStatusOf(err error) int {
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		if errors.Is(err, errWaitExpired) {
			return exitHeld
		}
		return exitUsage // the key, the ttl or the list of nodes is invalid
	}
	// The votes decide, not q.Err alone: a round that was cut short by -wait has no
	// verdict, and 69 must mean that nodes fail, because it calls an operator.
	failed, refused := 0, 0
	for _, v := range q.Round.Votes {
		switch v.Answer {
		case redlock.AnswerUnknown:
			failed++
		case redlock.AnswerNo:
			refused++
		}
	}
	if len(q.Round.Votes)-failed < q.Round.Need || refused == 0 && q.Err == redlock.ErrNoQuorum {
		return exitNoQuorum
	}
	return exitHeld
}

// hold runs the command while it holds the lock, and releases the lock.
func (c runConfig) hold(lock *redlock.Lock, path string, signals chan os.Signal) int {
	held, stop := lock.KeepAlive(context.Background())
	defer stop()
	ch, err := startChild(path, c.argv, c.environment(os.Environ(), lock), signals, lock.Valid)
	if err != nil {
		lock.Release(context.Background())
		return cannotStart(c.argv[0], err)
	}
	status, lost := c.supervise(ch, lock, held, signals)
	ch.stopWatchdog()

	// The lock must have been valid when the command ended. Checked before Release,
	// which makes it invalid.
	valid := lock.Valid()
	err = lock.Release(context.Background())
	switch {
	case lost: // supervise has reported it
		return exitLost
	case !valid || errors.Is(err, redlock.ErrLost):
		if cause := context.Cause(held); !valid && cause != nil {
			err = cause
		}
		complain("run: the lock %q was lost before the command ended: %v", c.key, err)
		return exitLost
	case err != nil: // the command ran entirely under the lock
		complainOf(err)
	}
	return status
}

const (
	// killLeadMax and killLeadPart bound killLead. SIGKILL takes effect in less than a
	// millisecond on an idle machine. On a busy one our timer may be late, and the
	// kernel still has to free the memory of all processes that were killed.
	killLeadMax  = 500 * time.Millisecond
	killLeadPart = 20 // of the ttl

	// pollInterval is the time between checks of the command's process group once the
	// lock is lost. It only delays the exit; halved, the checks are twice as frequent.
	pollInterval = 20 * time.Millisecond

	// reapWait is how long to wait for the group to disappear after SIGKILL: a zombie
	// that its new parent does not reap remains in the group.
	reapWait = time.Second
)

// killLead returns how long before the lock's Until the command is killed.
func killLead(ttl time.Duration) time.Duration { return min(killLeadMax, ttl/killLeadPart) }

// remaining returns the time that is left until t, on the monotonic or on the wall clock,
// whichever says less: the monotonic clock stands still while the machine is suspended.
func remaining(t time.Time) time.Duration {
	return min(time.Until(t), time.Until(t.Round(0)))
}

// killTime returns when the command must be killed, given that the lock has just been
// lost. If the lock was not renewed, that is shortly before Until. If another client has
// taken it, Until may still be a ttl away, and the command gets -grace to terminate.
func (c runConfig) killTime(lock *redlock.Lock) time.Time {
	latest, graced := lock.Until().Add(-killLead(c.ttl)), time.Now().Add(c.grace)
	if graced.Before(latest) {
		return graced
	}
	return latest
}

// supervise waits for the command to end and forwards signals to it. If the lock is lost,
// supervise reports it, terminates the command's process group, and waits until the
// group is gone.
func (c runConfig) supervise(ch *child, lock *redlock.Lock, held context.Context, signals <-chan os.Signal) (status int, lost bool) {
	var poll <-chan time.Time
	var kill, killed time.Time
	loss, ended := held.Done(), ch.ended
	for {
		select {
		case s := <-signals:
			ch.signal(s)
		case <-loss:
			loss = nil
			kill = c.killTime(lock)
			if remaining(kill) > 0 {
				ch.terminate()
			}
			// A timer, not the loop alone: complain may block if nobody reads our stderr.
			defer time.AfterFunc(remaining(kill), ch.kill).Stop()
			complain("run: terminating the command: %v", context.Cause(held))
			poll = time.After(0)
		case status = <-ended:
			ended = nil
			if loss != nil {
				return status, false
			}
		case <-poll:
			// The command itself may have ended while processes that it started still run.
			left := remaining(kill)
			if ended == nil && (!ch.groupAlive() || !killed.IsZero() && time.Since(killed) > reapWait) {
				return status, true
			}
			if left <= 0 && killed.IsZero() {
				ch.kill()
				killed = time.Now()
			}
			poll = time.After(pollInterval)
		}
	}
}

// environment returns env with the variables that describe the lock. It replaces those of
// an enclosing run: if a name occurred twice, it would depend on the reader which one counts.
func (c runConfig) environment(env []string, lock *redlock.Lock) []string {
	set := map[string]string{
		"REDLOCK_KEY":   lock.Key(),
		"REDLOCK_FENCE": strconv.FormatInt(lock.Fence(), 10),
		"REDLOCK_VALUE": lock.Value().Secret(),
		"REDLOCK_UNDER": strings.Join(addUnder(c.under, lock.Value().Secret()), " "),
	}
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, ours := set[name]
		return ours
	})
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	return env
}

// maxUnder is how many enclosing locks a run knows, which take 33 bytes each in the environment.
// Halved, a run under a lock that it wants waits for itself if sixteen other runs are in between.
const maxUnder = 32

// addUnder returns the hashes with that of a value put first, at most maxUnder.
func addUnder(under []string, value string) []string {
	hash := hashOf(value)
	under = slices.DeleteFunc(slices.Clone(under), func(other string) bool { return other == hash })
	return slices.Insert(under, 0, hash)[:min(len(under)+1, maxUnder)]
}

// hashOf returns what a command is told of the values of the enclosing locks, to recognise them.
// The values themselves are secrets that it has no use for.
func hashOf(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:16])
}

// signalNumber returns the number of a signal, or 0 if it has none.
func signalNumber(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}
