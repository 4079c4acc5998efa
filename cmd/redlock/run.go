package main

import (
	"context"
	"errors"
	"flag"
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

const runUsage = `usage: redlock run [flags] KEY -- CMD [ARG...]

takes the lock KEY, runs CMD, keeps the lock alive meanwhile and gives it back. If
the lock cannot be renewed CMD is ended while the lock still keeps others out:
SIGTERM to it and all it started, SIGKILL to those that are left just before the
lock expires.

flags:
  -nodes LIST     the Redis masters, comma separated: host:port, redis://, rediss://
                  or unix:// each; every client of KEY must name the same ones
                  (default $REDLOCK_NODES)
  -ttl DURATION   how long the lock outlives us if we die (default 10s)
  -wait DURATION  how long to wait for the lock (default 0: until interrupted)
  -try            do not wait for the lock
  -label TEXT     what others see as the holder (default host:pid)
  -grace DURATION how long before the lock expires CMD gets SIGTERM, if the lock could
                  not be renewed; SIGKILL follows half a second before it expires, or
                  a twentieth of the ttl if that is less; 0: SIGKILL only (default: a
                  third of the ttl, at most 5s)
  -guard DURATION a master that restarted or was flushed grants nothing for so long:
                  at least the longest ttl; the same for every client of KEY
                  (default $REDLOCK_GUARD, or 0: it grants at once)

CMD finds in its environment:
  REDLOCK_KEY     KEY
  REDLOCK_FENCE   the fencing token, greater than that of every holder before: let
                  the store refuse writes with a smaller one than it has seen
  REDLOCK_VALUE   what the nodes store for this holder

exit status: that of CMD, 128+n if signal n ended it, or
  64   the arguments are wrong
  69   no lock: too few nodes gave a usable answer
  70   the lock was lost while CMD ran, however CMD ended
  75   no lock: another has it, with -try or when -wait was over
  126  CMD can not be executed
  127  CMD was not found
  128+n  signal n came before CMD was started

SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to CMD and all it started. A run
that is suspended (ctrl-Z) for longer than the ttl has lost the lock.

If redlock itself is killed (kill -9, the OOM killer), CMD and all it started get
SIGKILL at once: from a second process of redlock that watches the first, and on
Linux and FreeBSD, CMD itself from the kernel as well. Of a redlock that is stopped
(SIGSTOP) or of a machine that stands still nobody knows: let the store refuse
writes with a smaller REDLOCK_FENCE than it has seen.

"All it started" is CMD's process group. Processes that leave the group (setsid,
daemons, jobs of an interactive shell) get no signals, nor do processes of other
users (sudo). Where there are no process groups (Windows) only CMD itself is ended,
without SIGTERM, -grace before the lock expires, and it outlives a redlock that is
killed.
`

// A runConfig is a command line of run.
type runConfig struct {
	nodes []string
	ttl   time.Duration
	wait  time.Duration // 0: for ever
	try   bool
	label string
	grace time.Duration
	guard time.Duration
	key   string
	argv  []string
}

// defaultGrace is the default of -grace where the ttl is three times as long: what most
// programs need to end. (systemd gives them 90 s, docker 10 s: more than there is.)
const defaultGrace = 5 * time.Second

func parseRun(args []string, env func(string) string) (runConfig, error) {
	var c runConfig
	var nodes string
	fs := newFlags("run")
	fs.StringVar(&nodes, "nodes", env("REDLOCK_NODES"), "")
	fs.DurationVar(&c.ttl, "ttl", 10*time.Second, "")
	fs.DurationVar(&c.wait, "wait", 0, "")
	fs.BoolVar(&c.try, "try", false, "")
	fs.StringVar(&c.label, "label", "", "")
	fs.DurationVar(&c.grace, "grace", defaultGrace, "")
	guard := env("REDLOCK_GUARD")
	fs.StringVar(&guard, "guard", guard, "")

	ours := args
	dashes := slices.Index(args, "--")
	if dashes >= 0 {
		ours, c.argv = args[:dashes], args[dashes+1:]
	}
	// Flags may stand on either side of KEY.
	if err := fs.Parse(ours); err != nil {
		return c, err
	}
	hasKey := fs.NArg() > 0
	if hasKey {
		c.key = fs.Arg(0)
		if err := fs.Parse(fs.Args()[1:]); err != nil {
			return c, err
		}
	}
	graceGiven := false
	fs.Visit(func(f *flag.Flag) { graceGiven = graceGiven || f.Name == "grace" })
	if !graceGiven {
		c.grace = max(min(defaultGrace, c.ttl/3), 0)
	}
	switch {
	case !hasKey || c.key == "":
		return c, errors.New("no KEY: name what is to be locked")
	case dashes < 0:
		return c, errors.New("no command: write -- and the command after KEY")
	case fs.NArg() > 0:
		return c, fmt.Errorf("%q after KEY: the command comes after --", fs.Arg(0))
	case len(c.argv) == 0:
		return c, errors.New("no command after --")
	case c.wait < 0:
		return c, fmt.Errorf("-wait %v is negative: 0 waits until interrupted, -try not at all", c.wait)
	case c.try && c.wait > 0:
		return c, errors.New("-try and -wait contradict each other: leave one out")
	case c.grace < 0:
		return c, fmt.Errorf("-grace %v is negative: 0 kills at once", c.grace)
	}
	if guard != "" {
		var err error
		if c.guard, err = time.ParseDuration(guard); err != nil || c.guard < 0 {
			return c, fmt.Errorf("-guard (or REDLOCK_GUARD) %q is no duration: 0 or more, such as 30s", guard)
		}
	}
	for n := range strings.SplitSeq(nodes, ",") {
		if n = strings.TrimSpace(n); n != "" {
			c.nodes = append(c.nodes, n)
		}
	}
	if len(c.nodes) == 0 {
		return c, errors.New("no nodes: give -nodes a:6379,b:6379,c:6379 or set REDLOCK_NODES")
	}
	return c, nil
}

// run is the subcommand. It returns the exit status.
func run(args []string) int {
	c, err := parseRun(args, os.Getenv)
	if err != nil {
		return badFlags(err, "run", runUsage)
	}
	// Before the lock is asked for: nobody should wait for a command that is not there.
	path, err := exec.LookPath(c.argv[0])
	if err != nil {
		return cannotStart(c.argv[0], err)
	}
	locker, err := redlock.Open(redlock.Options{RestartGuard: c.guard, Grace: max(c.grace, killLead(c.ttl))}, c.nodes...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitUsage
	}
	defer locker.Close()

	signals := make(chan os.Signal, 16)
	for _, s := range forwarded {
		// Notify would undo what nohup, or a shell for its background jobs, arranged.
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

var errGaveUp = errors.New("gave up")

// acquire takes the lock, or returns nil and the exit status. A signal ends it.
func (c runConfig) acquire(locker *redlock.Locker, signals <-chan os.Signal) (*redlock.Lock, int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.wait > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, c.wait, errGaveUp)
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
		// A signal that came at the same moment must not be left to a command that
		// need not have been started.
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
		return nil, exitSignal + number(sig)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return nil, refusal(err)
	}
	return lock, 0
}

// take acquires the lock, and refuses a list of nodes that has one server twice. That is
// known when both names have answered, and the first grant of a Locker, the only one of
// ours, need not wait for them: it is sound, but not by as many servers as were meant. So
// all nodes are asked at the same time, and those that have not answered when the lock is
// ours have a little longer.
func (c runConfig) take(ctx context.Context, locker *redlock.Locker, opts []redlock.AcquireOption) (*redlock.Lock, error) {
	known := make(chan error, 1)
	go func() {
		_, err := locker.Inspect(ctx, c.key)
		known <- err
	}()
	acquire := locker.Acquire
	if c.try {
		acquire = locker.TryAcquire
	}
	start := time.Now()
	lock, err := acquire(ctx, c.key, c.ttl, opts...)
	if err != nil {
		return nil, err
	}
	longer := time.NewTimer(min(max(10*time.Since(start), introductionLeast), introductionMost))
	defer longer.Stop()
	select {
	case err = <-known:
	case <-longer.C:
	case <-ctx.Done():
	}
	var q *redlock.QuorumError
	if err == nil || errors.As(err, &q) || ctx.Err() != nil { // nodes that do not answer are a minority
		return lock, nil
	}
	lock.Release(context.Background())
	return nil, err
}

// How long a lock that was acquired waits for nodes that have not said which server they
// are: ten times as long as the acquisition took, within these bounds. It is what a hung
// node costs a run when it starts. Halved, a node that takes five times as long as the
// others may be the same server as one of them.
const (
	introductionLeast = 50 * time.Millisecond
	introductionMost  = 500 * time.Millisecond
)

// refusal is the exit status for a lock that was not had.
func refusal(err error) int {
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		if errors.Is(err, errGaveUp) {
			return exitHeld
		}
		return exitUsage // key, ttl or nodes are not as they should be
	}
	// By the votes, not by q.Err alone: a wait that was over in the middle of a round
	// got no verdict, and 69 is to call an operator only where nodes fail.
	failed, refused := 0, 0
	for _, v := range q.Round.Votes {
		switch v.Answer {
		case redlock.Unknown:
			failed++
		case redlock.No:
			refused++
		}
	}
	if len(q.Round.Votes)-failed < q.Round.Need || refused == 0 && q.Err == redlock.ErrNoQuorum {
		return exitNoQuorum
	}
	return exitHeld
}

// hold runs the command under the lock and gives the lock back.
func (c runConfig) hold(lock *redlock.Lock, path string, signals chan os.Signal) int {
	held, stop := lock.KeepAlive(context.Background())
	defer stop()
	ch, err := startChild(path, c.argv, environment(os.Environ(), lock), signals, lock.Valid)
	if err != nil {
		lock.Release(context.Background())
		return cannotStart(c.argv[0], err)
	}
	status, lost := c.supervise(ch, lock, held, signals)
	ch.unwatch()

	// What counts is whether the lock was held when the command had ended, before
	// Release makes it invalid.
	valid := lock.Valid()
	err = lock.Release(context.Background())
	switch {
	case lost: // and told
		return exitLost
	case !valid || errors.Is(err, redlock.ErrLost):
		if cause := context.Cause(held); !valid && cause != nil {
			err = cause
		}
		complain("run: the lock %q was lost before the command ended: %v", c.key, err)
		return exitLost
	case err != nil: // the work is done, and was done under the lock
		fmt.Fprintln(os.Stderr, err)
	}
	return status
}

const (
	// killMost and killPart bound killLead. SIGKILL takes effect in less than a
	// millisecond on an idle machine. On a busy one our timer may be late, and the
	// kernel still has to free the memory of everything that was killed.
	killMost = 500 * time.Millisecond
	killPart = 20 // of the ttl

	// endPause is between two looks at the command's process group once the lock is
	// lost. It only delays the exit; halved, it looks twice as often.
	endPause = 20 * time.Millisecond

	// reapWait is how long we wait for the group to be gone after SIGKILL: a zombie
	// that its new parent does not reap stays in it.
	reapWait = time.Second
)

// killLead is how long before the lock's Until the command is killed.
func killLead(ttl time.Duration) time.Duration { return min(killMost, ttl/killPart) }

// until is how long it is until t, on the steady or the wall clock: the steady clock
// stands still while the machine is suspended.
func until(t time.Time) time.Duration {
	return min(time.Until(t), time.Until(t.Round(0)))
}

// killTime is when the command must be killed, where the lock is lost now. That is
// shortly before Until where it was not renewed; where another has it, the old Until
// may be a ttl ahead, and there is -grace to end in.
func (c runConfig) killTime(lock *redlock.Lock) time.Time {
	latest, graced := lock.Until().Add(-killLead(c.ttl)), time.Now().Add(c.grace)
	if graced.Before(latest) {
		return graced
	}
	return latest
}

// supervise waits for the command to end and passes signals on to it. When the lock is
// lost it says so, ends the command and all it started, and waits until these are gone.
func (c runConfig) supervise(ch *child, lock *redlock.Lock, held context.Context, signals <-chan os.Signal) (status int, lost bool) {
	var look <-chan time.Time
	var kill, killed time.Time
	loss, ended := held.Done(), ch.ended
	for {
		select {
		case s := <-signals:
			ch.signal(s)
		case <-loss:
			loss = nil
			kill = c.killTime(lock)
			if until(kill) > 0 {
				ch.terminate()
			}
			// Not by the loop alone: nobody may be reading our stderr.
			defer time.AfterFunc(until(kill), ch.kill).Stop()
			complain("run: the command is ended: %v", context.Cause(held))
			look = time.After(0)
		case status = <-ended:
			ended = nil
			if loss != nil {
				return status, false
			}
		case <-look:
			// The command may be gone, and what it started still at work.
			left := until(kill)
			if ended == nil && (!ch.leftovers() || !killed.IsZero() && time.Since(killed) > reapWait) {
				return status, true
			}
			if left <= 0 && killed.IsZero() {
				ch.kill()
				killed = time.Now()
			}
			look = time.After(endPause)
		}
	}
}

// environment is ours with what the command is told. Variables of a run around this
// one are replaced: of two of a name, which one is found is anybody's guess.
func environment(env []string, lock *redlock.Lock) []string {
	set := map[string]string{
		"REDLOCK_KEY":   lock.Key(),
		"REDLOCK_FENCE": strconv.FormatInt(lock.Fence(), 10),
		"REDLOCK_VALUE": lock.Value(),
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

func number(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}
