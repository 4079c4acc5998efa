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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-ce352c9b/redlock"
)

// run executes the subcommand run and returns the exit status.
func run(args []string) int {
	c, err := parseRun(args, os.Getenv)
	if err != nil {
		return badUsage(err, "run", runUsage())
	}
	r := newReporter(&c)
	defer r.flush()
	if c.exposed && !c.quiet {
		r.warn("run: --nodes has a password, which every user of this machine can read in the list of processes")
		r.hint("use --nodes-file or REDLOCK_NODES")
	}
	if err := c.readNodes(); err != nil {
		r.complainOf(err)
		return exitUsage
	}
	// Checked before the lock is acquired: waiting for a command that does not exist is useless.
	path, err := exec.LookPath(c.argv[0])
	if err != nil {
		return r.cannotStart(c.argv[0], err)
	}
	locker, closeAll, err := c.open(r.trace())
	if err != nil {
		r.complainOf(err)
		return exitUsage
	}
	defer closeAll()

	signals := make(chan os.Signal, 16)
	for _, s := range forwardedSignals {
		// Notify would override what nohup, or a shell for its background jobs, has set.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	t := &runTask{runConfig: c, reporter: r, locker: locker}
	if status := t.acquire(signals); t.locks == nil {
		return status
	}
	return t.hold(path, signals)
}

// A runTask is one run: the locks, and what has to be done with them.
type runTask struct {
	runConfig
	*reporter
	locker *redlock.Locker
	locks  redlock.Locks // nil until they are acquired; one for each key, or that of a slot
	slot   int           // with --slots
}

// cannotStart reports that the command cannot be started and returns the exit status.
func (r *reporter) cannotStart(name string, err error) int {
	status := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		status = exitNotFound
	}
	var e *exec.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	r.complain("run: %s: %v", name, err)
	return status
}

// errWaitExpired is the cause with which --wait cancels the acquisition.
var errWaitExpired = errors.New("--wait expired")

// acquire acquires the locks, or returns the exit status. A signal cancels it.
func (t *runTask) acquire(signals <-chan os.Signal) (status int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if t.wait > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, t.wait, errWaitExpired)
		defer stop()
	}
	var locks redlock.Locks
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		locks, err = t.take(ctx)
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
		if locks != nil {
			locks.Release(context.Background())
		}
		return exitSignal + signalNumber(sig)
	case err != nil:
		return t.refused(err)
	}
	t.locks = locks
	return 0
}

// refused reports why the locks were not acquired and returns the exit status.
func (t *runTask) refused(err error) int {
	status := exitStatusOf(err)
	if status != exitHeld {
		t.complainOf(err)
		return status
	}
	// Losing against another client is what --try and --quiet expect.
	if t.json || t.verbose || !t.try && !t.quiet {
		t.complainOf(err)
	}
	return t.conflict
}

// take acquires the locks, and returns an error if two names in the list of nodes turn out
// to be one server. That is known only when both names have replied, and the first grant
// of a Locker, the only one here, does not wait for all replies. Such a grant is sound,
// but it rests on fewer servers than intended. So take inspects all nodes while it
// acquires, and waits a little longer for those that have not replied by then.
//
// It also returns an error if redlock was started under a lock that it wants, and would wait
// for its own end. A process that outlived that lock, or uses other nodes, finds another value
// there. So a process that knows a value of an enclosing run inspects the nodes first.
func (t *runTask) take(ctx context.Context) (redlock.Locks, error) {
	known := make(chan error, 1)
	if len(t.under) == 0 {
		go func() {
			_, err := t.locker.Inspect(ctx, t.names()[0])
			known <- err
		}()
	} else if err := t.underItself(ctx, known); err != nil {
		return nil, err
	}
	start := time.Now()
	locks, err := t.ask(ctx)
	if err != nil && t.events == nil {
		return nil, err
	}
	longer := time.NewTimer(min(max(10*time.Since(start), identifyWaitMin), identifyWaitMax))
	defer longer.Stop()
	var second error
	select {
	case second = <-known:
	case <-longer.C:
	case <-ctx.Done():
	}
	if err != nil { // what the other nodes have replied is reported now
		return nil, err
	}
	var q *redlock.QuorumError
	if second == nil || errors.As(second, &q) || ctx.Err() != nil { // the nodes that did not reply are a minority
		return locks, nil
	}
	locks.Release(context.Background())
	return nil, second
}

// names returns the keys of which any or all are acquired.
func (t *runTask) names() []string {
	if t.slots == 0 {
		return t.keys
	}
	names := make([]string, t.slots)
	for i := range names {
		names[i] = fmt.Sprint(t.keys[0], "#", i)
	}
	return names
}

// underItself returns an error if redlock runs under a lock without which it cannot go on: that
// of any of its keys, or those of all slots. known gets an error of the inspection.
func (t *runTask) underItself(ctx context.Context, known chan<- error) error {
	names := t.names()
	under, errs := make([]bool, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			var s redlock.Status
			s, errs[i] = t.locker.Inspect(ctx, name)
			under[i] = slices.Contains(t.under, hashOf(s.Value.Secret()))
		})
	}
	all.Wait()
	known <- errs[0]
	at := slices.Index(under, true)
	if at < 0 || t.slots > 0 && slices.Contains(under, false) {
		return nil
	}
	key := t.keys[min(at, len(t.keys)-1)]
	return fmt.Errorf("redlock: run %q: redlock itself runs under the lock %q, and would wait for itself: start the command without redlock run, or use another key", key, names[at])
}

// ask acquires the locks.
func (t *runTask) ask(ctx context.Context) (redlock.Locks, error) {
	var opts []redlock.AcquireOption
	if t.label != "" {
		opts = append(opts, redlock.WithLabel(t.label))
	}
	if t.try {
		opts = append(opts, redlock.WithWait(0))
	}
	if len(t.keys) > 1 {
		return t.locker.AcquireAll(ctx, t.keys, t.ttl, opts...)
	}
	var lock *redlock.Lock
	var err error
	if t.slots > 0 {
		lock, t.slot, err = t.locker.AcquireSlot(ctx, t.keys[0], t.slots, t.ttl, opts...)
	} else {
		lock, err = t.locker.Acquire(ctx, t.keys[0], t.ttl, opts...)
	}
	if err != nil {
		return nil, err
	}
	return redlock.Locks{lock}, nil
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
	// The votes decide, not q.Err alone: a round that was cut short by --wait has no
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

// hold runs the command while it holds the locks, and gives them up.
func (t *runTask) hold(path string, signals chan os.Signal) int {
	held, stop := t.locks.KeepAlive(context.Background())
	defer stop()
	ch, err := startChild(path, t.argv, t.environment(os.Environ()), signals, t.locks.Valid)
	if err != nil {
		t.locks.Release(context.Background())
		return t.cannotStart(t.argv[0], err)
	}
	status, lost := t.supervise(ch, held, signals)
	ch.stopWatchdog()

	// The locks must have been valid when the command ended. Checked before they are given up,
	// which makes them invalid.
	valid := t.locks.Valid()
	err = t.giveUp()
	switch {
	case lost: // supervise has reported it
		return exitLost
	case !valid || errors.Is(err, redlock.ErrLost):
		if cause := context.Cause(held); !valid && cause != nil {
			err = cause
		}
		t.complain("run: the lock %s was lost before the command ended: %v", t.keyText(), err)
		return exitLost
	case err != nil: // the command ran entirely under the lock
		t.complainOf(err)
	}
	return status
}

// giveUp releases the locks, or with --at-least leaves them until others may run.
func (t *runTask) giveUp() error {
	if t.atLeast == 0 {
		return t.locks.Release(context.Background())
	}
	return t.locks.LeaveUntil(context.Background(), t.started().Add(t.atLeast))
}

// started returns since when all locks are held.
func (t *runTask) started() (last time.Time) {
	for _, k := range t.locks {
		if s := k.Started(); s.After(last) {
			last = s
		}
	}
	return last
}

// keyText returns the keys for a message.
func (t *runTask) keyText() string {
	quoted := make([]string, len(t.keys))
	for i, key := range t.keys {
		quoted[i] = strconv.Quote(key)
	}
	return strings.Join(quoted, ", ")
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

// killTime returns when the command must be killed, given that a lock has just been
// lost. If it was not renewed, that is shortly before Until. If another client has
// taken it, Until may still be a ttl away, and the command gets --grace to terminate.
func (t *runTask) killTime() time.Time {
	latest, graced := t.locks.Until().Add(-killLead(t.ttl)), time.Now().Add(t.grace)
	if graced.Before(latest) {
		return graced
	}
	return latest
}

// supervise waits for the command to end and forwards signals to it. If a lock is lost, or
// --max-hold has passed, supervise reports it, terminates the command's process group, and
// waits until the group is gone. After --max-hold the locks are still renewed meanwhile.
func (t *runTask) supervise(ch *child, held context.Context, signals <-chan os.Signal) (status int, lost bool) {
	var poll, overdue <-chan time.Time
	var kill, killed time.Time // kill is zero while the command may run
	if t.maxHold > 0 {
		timer := time.NewTimer(time.Until(t.started().Add(t.maxHold)))
		defer timer.Stop()
		overdue = timer.C
	}
	loss, ended := held.Done(), ch.ended
	for {
		select {
		case s := <-signals:
			ch.signal(s)
		case <-loss:
			loss, overdue = nil, nil
			if at := t.killTime(); kill.IsZero() || at.Before(kill) {
				kill = at
			}
			if remaining(kill) > 0 {
				ch.terminate()
			}
			// A timer, not the loop alone: complain may block if nobody reads our stderr.
			defer time.AfterFunc(remaining(kill), ch.kill).Stop()
			t.complain("run: terminating the command: %v", context.Cause(held))
			poll = time.After(0)
		case <-overdue:
			overdue = nil
			select {
			case status = <-ended: // at the same moment
				return status, false
			default:
			}
			if kill = time.Now().Add(t.grace); t.grace > 0 {
				ch.terminate()
			}
			defer time.AfterFunc(t.grace, ch.kill).Stop()
			t.complain("run: terminating the command: --max-hold %v has passed", t.maxHold)
			poll = time.After(0)
		case status = <-ended:
			ended = nil
			if kill.IsZero() {
				return status, false
			}
		case <-poll:
			// The command itself may have ended while processes that it started still run.
			left := remaining(kill)
			if ended == nil && (!ch.groupAlive() || !killed.IsZero() && time.Since(killed) > reapWait) {
				if loss == nil {
					return status, true
				}
				return exitOverdue, false
			}
			if left <= 0 && killed.IsZero() {
				ch.kill()
				killed = time.Now()
			}
			poll = time.After(pollInterval)
		}
	}
}

// environment returns env with the variables that describe the locks. It replaces those of
// an enclosing run: if a name occurred twice, it would depend on the reader which one counts.
func (t *runTask) environment(env []string) []string {
	set := make(map[string]string)
	under := t.under
	for i, lock := range t.locks {
		number := ""
		if len(t.locks) > 1 {
			number = fmt.Sprint("_", i+1)
		}
		set["REDLOCK_KEY"+number] = lock.Key()
		if fence := lock.Fence(); fence != 0 {
			set["REDLOCK_FENCE"+number] = strconv.FormatInt(fence, 10)
		}
		set["REDLOCK_VALUE"+number] = lock.Value().Secret()
		under = addUnder(under, lock.Value().Secret())
	}
	if t.slots > 0 {
		set["REDLOCK_SLOT"] = strconv.Itoa(t.slot)
	}
	set["REDLOCK_UNDER"] = strings.Join(under, " ")
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, value, _ := strings.Cut(kv, "=")
		if name == "REDLOCK_NODES" && !t.passNodes && slices.ContainsFunc(splitList(value), hasPassword) {
			t.say("run: REDLOCK_NODES is not passed to the command, since it has a password; --pass-nodes passes it")
			return true
		}
		return aboutLock.MatchString(name)
	})
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	return env
}

// aboutLock matches the variables by which a run tells its command about its locks.
var aboutLock = regexp.MustCompile(`^REDLOCK_(UNDER|SLOT|(KEY|FENCE|VALUE)(_[0-9]+)?)$`)

// maxUnder is how many enclosing locks a run knows, which take 33 bytes each in the environment:
// those of 32 runs, of which one may have as many keys as there can be. Halved, a run that wants the
// last of 64 keys of an enclosing run waits for itself.
const maxUnder = 32 + maxKeys

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
