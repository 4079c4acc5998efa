//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/proxy"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// A process is a running `redlock` command.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

// start runs redlock with args; nodes becomes its $REDLOCK_NODES.
func start(t *testing.T, nodes []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Env = append(os.Environ(), asCommand+"=1", "REDLOCK_NODES="+strings.Join(nodes, ","))
	p.cmd.Stderr = &p.stderr
	// Processes that the command leaves behind keep its stderr open.
	p.cmd.WaitDelay = 10 * time.Second
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.in.Close(); p.cmd.Process.Signal(syscall.SIGTERM) })
	return p
}

// line waits for the next line of output and returns it.
func (p *process) line() string {
	p.t.Helper()
	s, err := p.out.ReadString('\n')
	if err != nil {
		p.cmd.Wait()
		p.t.Fatalf("got no line of output (%v): %s", err, p.stderr.String())
	}
	return strings.TrimSuffix(s, "\n")
}

// says fails the test unless this is the next line of output.
func (p *process) says(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Errorf("output: got %q, want %q", got, want)
	}
}

// status waits until the process and everything that inherited its output have ended, and returns the exit status.
func (p *process) status() int {
	p.t.Helper()
	io.Copy(io.Discard, p.out) // returns when no process of the command's group has the output open
	err := p.cmd.Wait()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) want(status int, stderr ...string) {
	p.t.Helper()
	if got := p.status(); got != status {
		p.t.Errorf("exit status: got %d, want %d: %s", got, status, p.stderr.String())
	}
	if len(stderr) == 0 && p.stderr.Len() > 0 {
		p.t.Errorf("stderr: got %q, want nothing", p.stderr.String())
	}
	for _, s := range stderr {
		if !strings.Contains(p.stderr.String(), s) {
			p.t.Errorf("stderr: got %q, want %q in it", p.stderr.String(), s)
		}
	}
}

func TestRunPassesTheStatusThrough(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	for script, want := range map[string]int{
		"true":       0,
		"exit 7":     7,
		"kill -9 $$": 128 + 9,
		"kill $$":    128 + 15,
	} {
		start(t, c.addrs(), "run", "k", "--", "sh", "-c", script).want(want)
	}
	c.free(t)
}

func TestRunTellsTheCommand(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	t.Log("nested runs: the inner one's variables win")
	script := `echo "$REDLOCK_KEY"; echo "$REDLOCK_FENCE"; echo "$REDLOCK_VALUE"; read x; echo "$x"; echo err >&2`
	p := start(t, c.addrs(), "run", "outer", "--", os.Args[0], "run", "--label", "me", "in ner", "--", "sh", "-c", script)
	p.says("in ner")
	if f, err := strconv.ParseInt(p.line(), 10, 64); err != nil || f <= 0 {
		t.Errorf("REDLOCK_FENCE: got %d, %v", f, err)
	}
	value := p.line()
	if n := c.holding("in ner", value); n < 3 || !strings.HasPrefix(value, "me:") {
		t.Errorf("REDLOCK_VALUE: %q is held on %d nodes, want a majority", value, n)
	}
	io.WriteString(p.in, "typed\n")
	p.says("typed")
	p.want(0, "err\n")
}

// A run under the lock that it wants would wait for itself. Where the value in the environment is not that of the lock any more, or
// of another one, the run goes on as usual.
func TestRunUnderItsOwnLockIsRefused(t *testing.T) {
	t.Parallel()
	c, other := testCluster(t), testCluster(t)
	self := os.Args[0]
	for _, flags := range [][]string{nil, {"--try"}, {"--wait", "1m"}} {
		inner := append([]string{self, "run"}, append(flags, "k", "--", "echo", "never")...)
		start(t, c.addrs(), append([]string{"run", "k", "--"}, inner...)...).want(64, `run "k"`, "under the lock", "start the command without redlock run", "another key")
	}
	between := []string{self, "run", "k2", "--", self, "run", "k3", "--"}
	inner := append(between, self, "run", "--wait", "5s", "k", "--", "echo", "never")
	start(t, c.addrs(), append([]string{"run", "k", "--"}, inner...)...).want(64, `run "k"`, "under the lock")
	for what, inner := range map[string][]string{
		"another key":                             {self, "run", "k2", "--", "echo", "in"},
		"other nodes":                             {self, "run", "--nodes", strings.Join(other.addrs(), ","), "k", "--", "echo", "in"},
		"other nodes, further down":               append(between, self, "run", "--nodes", strings.Join(other.addrs(), ","), "k", "--", "echo", "in"),
		"what is no hash":                         {"env", "REDLOCK_UNDER= x " + strings.Repeat("y ", 1000), self, "run", "k2", "--", "echo", "in"},
		"a lock that is not stored any more":      {"env", "REDLOCK_VALUE=gone:6ba7b810-9dad-41d1-80b4-00c04fd430c8", self, "run", "k2", "--", "echo", "in"},
		"another key, whose value is not a value": {"env", "REDLOCK_VALUE=", self, "run", "k2", "--", "echo", "in"},
	} {
		t.Log(what)
		p := start(t, c.addrs(), append([]string{"run", "k", "--"}, inner...)...)
		p.says("in")
		p.want(0)
	}
	t.Log("a process that outlives the lock waits like any other")
	p := start(t, c.addrs(), "run", "k", "--", "sh", "-c", `(sleep 1; exec "$0" run k -- echo in) &`, self)
	p.says("in")
	p.want(0)
	p = start(t, c.addrs(), "run", "k", "--", self, "run", "k2", "--", "sh", "-c", `(sleep 1; exec "$0" run k -- echo in) &`, self)
	p.says("in")
	p.want(0)
	c.free(t)
}

// However deep runs are nested, the variable stays short, and has the hashes of the innermost locks: not the values, which would let
// a command take over locks that are not its own.
func TestTheEnclosingLocksAreKnownByHashes(t *testing.T) {
	var under []string
	for i := range 3 * maxUnder {
		under = addUnder(under, fmt.Sprint("web-1:", i))
	}
	if got := strings.Join(under, " "); len(under) != maxUnder || len(got) > 33*maxUnder || strings.Contains(got, "web-1") {
		t.Errorf("got %d hashes, %s", len(under), got)
	}
	for i, hash := range under {
		if want := hashOf(fmt.Sprint("web-1:", 3*maxUnder-1-i)); hash != want {
			t.Errorf("hash %d: got %s, want %s", i, hash, want)
		}
	}
	again := addUnder(under, fmt.Sprint("web-1:", 3*maxUnder-2))
	if want := []string{under[1], under[0], under[2]}; len(again) != maxUnder || !slices.Equal(again[:3], want) {
		t.Errorf("a value that is known is added: got %d hashes, %s first, want %s", len(again), again[:3], want)
	}
	c, err := parseRun([]string{"--nodes", "a", "k", "--", "cmd"}, func(name string) string {
		return map[string]string{"REDLOCK_UNDER": " " + hashOf("k2") + " " + hashOf("k3"), "REDLOCK_VALUE": "k4"}[name]
	})
	if want := []string{hashOf("k4"), hashOf("k2"), hashOf("k3")}; err != nil || !slices.Equal(c.under, want) {
		t.Errorf("below a redlock that sets REDLOCK_VALUE alone: got %s, %v; want %s", c.under, err, want)
	}
}

func TestRunWaitsForTheLock(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	holder := start(t, c.addrs(), "run", "k", "--", "sh", "-c", "echo in; read x; echo out")
	holder.line()
	t.Log("a signal ends the wait")
	for _, sig := range testedSignals {
		p := start(t, c.addrs(), "run", "k", "--", "echo", "never")
		seen(t, c)
		p.cmd.Process.Signal(sig)
		p.endsQuietly()
		p.want(128 + int(sig))
	}

	t.Log("the next one gets the lock when the holder has released it")
	next := start(t, c.addrs(), "run", "k", "--", "echo", "in")
	seen(t, c)
	holder.in.Close()
	holder.says("out")
	holder.want(0)
	next.says("in")
	next.want(0)
}

var testedSignals = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT}

// seen waits until a process has asked for the lock, that is, until it has connected to a majority.
func seen(t *testing.T, c cluster) {
	t.Helper()
	before := make([]int, len(c))
	for i, n := range c {
		before[i] = n.m.TotalConnectionCount()
	}
	realredis.Eventually(t, "the process asks for the lock", func() bool {
		k := 0
		for i, n := range c {
			if n.m.TotalConnectionCount() > before[i] {
				k++
			}
		}
		return k > len(c)/2
	})
}

func TestRunForwardsSignals(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	for name, sig := range testedSignals {
		// The grandchild is in the group and must get the signal, too. It runs in the foreground
		// of its shell, because a shell ignores SIGINT and SIGQUIT in background jobs.
		script := fmt.Sprintf(`trap "echo child; exit 9" %s; sh -c 'trap "echo grandchild; exit" %s; echo ready; while :; do sleep 0.02; done'`, name, name)
		p := start(t, c.addrs(), "run", name, "--", "sh", "-c", script)
		p.line()
		p.cmd.Process.Signal(sig)
		if a, b := p.line(), p.line(); a != "grandchild" || b != "child" {
			t.Errorf("%v: got %q, %q", sig, a, b)
		}
		if got := p.status(); got != 9 { // the shells may report the signal to stderr
			t.Errorf("%v: got %d, want 9: %s", sig, got, p.stderr.String())
		}
	}
}

func TestRunHeedsNohup(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	// The shell ignores SIGHUP, and the program that it execs inherits that.
	p := &process{t: t, cmd: exec.Command("sh", "-c", `trap "" HUP; exec "$0" run k -- sh -c "kill -HUP \$PPID; kill -HUP \$\$; read x; echo alive"`, os.Args[0])}
	p.cmd.Env = append(os.Environ(), asCommand+"=1", "REDLOCK_NODES="+strings.Join(c.addrs(), ","))
	p.cmd.Stdin = strings.NewReader("x\n")
	out, err := p.cmd.Output()
	if err != nil || string(out) != "alive\n" {
		t.Errorf("got %q, %v; want alive", out, err)
	}
}

// The tests of signals must also pass where some signals are ignored: under nohup, or in the background of a script.
func TestSignalsAreTestedUnderNohup(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `trap "" HUP INT QUIT; exec "$0" "$@"`, os.Args[0], "-test.run=^(TestRunWaitsForTheLock|TestRunForwardsSignals)$", "-test.timeout=60s")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// If another client takes the lock away, the next renewal detects the loss.
func TestRunEndsTheCommandOnLoss(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, script string }{
		{"command ends well on SIGTERM", `trap "exit 0" TERM; echo in; while :; do sleep 0.02; done`},
		{"command ignores SIGTERM", `trap "" TERM; echo in; while :; do sleep 0.02; done`},
		{"grandchild ignores SIGTERM", `sh -c 'trap "" TERM; echo in; while :; do sleep 0.02; done' & wait`},
		{"stopped", `echo in; kill -STOP $$; echo went on`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := testCluster(t)
			p := start(t, c.addrs(), "run", "--ttl", "600ms", "--grace", "200ms", "k", "--", "sh", "-c", tt.script)
			p.line()
			c.takeAway()
			p.endsQuietly()
			p.want(70, "lost", `"k"`)
			if n := c.holding("k", "another"); n != 5 {
				t.Errorf("the other's lock is on %d nodes, want all", n)
			}
		})
	}
}

func TestRunEndsTheCommandWhenNoNodeAnswers(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	p := start(t, c.addrs(), "run", "--ttl", "800ms", "k", "--", "sh", "-c", "echo in; exec sleep 60")
	p.line()
	began := time.Now()
	c[0].hang()
	c[1].kill()
	c[2].hang()
	p.want(70, "lost")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// A short command ends before the next renewal could detect the loss.
func TestRunNoticesTheLossAtTheEnd(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	p := start(t, c.addrs(), "run", "--ttl", "1m", "k", "--", "sh", "-c", "echo in; read x")
	p.line()
	c.takeAway()
	p.in.Close()
	p.want(70, "lost")
}

// A command that --max-hold has asked to end may take some time, in which the lock may be lost.
func TestRunNoticesTheLossAfterMaxHold(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	p := start(t, c.addrs(), "run", "--ttl", "1m", "--max-hold", "300ms", "--grace", "10s", "k", "--", "sh", "-c", `trap "echo asked; read x; exit 0" TERM; echo in; while :; do sleep 0.02; done`)
	p.line()
	p.says("asked")
	c.takeAway()
	p.in.Close()
	p.want(70, "--max-hold 300ms has passed", "lost")
}

func TestRunCannotStart(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	os.WriteFile(garbage, []byte("\x00\x01"), 0o755)
	plain := filepath.Join(dir, "plain")
	os.WriteFile(plain, nil, 0o644)
	start(t, c.addrs(), "run", "k", "--", "no-such-command").want(127, "no-such-command")
	start(t, c.addrs(), "run", "k", "--", filepath.Join(dir, "none")).want(127, "none")
	start(t, c.addrs(), "run", "k", "--", garbage).want(126, "garbage")
	start(t, c.addrs(), "run", "k", "--", plain).want(126, "plain")
	c.free(t)
}

// The servers are stopped. The command and its child ignore SIGTERM and write the current time to a file for as long as
// they live.
func TestRunEndsTheCommandBeforeUntil(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"command":    `trap "" TERM; echo in; while :; do date +%s%N >>"$0"; sleep 0.01; done`,
		"grandchild": `sh -c 'trap "" TERM; echo in; while :; do date +%s%N >>"$0"; sleep 0.01; done' "$0" & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := realredis.Start(t, 3)
			file := filepath.Join(t.TempDir(), "beats")
			p := start(t, addrsOf(servers), "run", "--ttl", "6s", "--grace", "1500ms", "k", "--", "sh", "-c", script, file)
			p.line()
			for _, s := range servers {
				if err := s.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			p.want(70, "lost")
			until := lostUntil(t, p.stderr.String())
			b, _ := os.ReadFile(file)
			beats := strings.Fields(string(b))
			if len(beats) == 0 {
				t.Fatal("the command has written nothing")
			}
			ns, err := strconv.ParseInt(beats[len(beats)-1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if last := time.Unix(0, ns); last.After(until) {
				t.Errorf("still at work %v after Until", last.Sub(until))
			}
		})
	}
}

// lostUntil returns the end of the validity as stderr reports it; it must lie within the last hours.
func lostUntil(t *testing.T, stderr string) time.Time {
	t.Helper()
	_, text, ok := strings.Cut(stderr, "ends at ")
	if !ok || len(text) < len("15:04:05.000") {
		t.Fatalf("got %q, want it to tell when the validity ends", stderr)
	}
	clock, err := time.Parse("15:04:05.000", text[:len("15:04:05.000")])
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	until := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), clock.Second(), clock.Nanosecond(), time.Local)
	if until.Sub(now) > 12*time.Hour {
		until = until.AddDate(0, 0, -1)
	}
	return until
}

// A command that ends within the grace does not make the next holder wait for the expiry.
func TestRunReleasesWithinTheGrace(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	p := start(t, c.addrs(), "run", "--ttl", "6s", "--grace", "3s", "k", "--", "sh", "-c", `trap "echo asked; read x; exit 0" TERM; echo in; while :; do sleep 0.02; done`)
	p.line()
	c.fail("LOADING Redis is loading the dataset in memory")
	p.says("asked")
	c.fail("")
	p.in.Close()
	p.want(70, "lost", "not renewed")
	c.free(t)
}

// A run that is killed with SIGKILL must not leave its command running. The run names the command's group to its
// watchdog right after it has started the command; half a second is enough for that, however busy the machine is.
func TestRunThatIsKilledLeavesNobodyAtWork(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"command":    `trap "" HUP TERM; echo $$; while :; do sleep 0.02; done`,
		"grandchild": `sleep 0.5; sh -c 'trap "" HUP TERM; echo $PPID; while :; do sleep 0.02; done'; echo went on`,
		"stopped":    `echo $$; kill -STOP $$; echo went on`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testCluster(t)
			p := start(t, c.addrs(), "run", "k", "--", "sh", "-c", script)
			pid, err := strconv.Atoi(p.line())
			if err != nil {
				t.Fatal(err)
			}
			defer syscall.Kill(-pid, syscall.SIGKILL)
			p.cmd.Process.Kill()
			p.endsQuietly()
		})
	}
}

// endsQuietly waits until no process has the command's output open any more, and fails if there was output.
func (p *process) endsQuietly() {
	p.t.Helper()
	var out []byte
	done := make(chan struct{})
	go func() {
		out, _ = io.ReadAll(p.out)
		close(done)
	}()
	select {
	case <-done:
		if len(out) > 0 {
			p.t.Errorf("got %q after the end", out)
		}
	case <-time.After(20 * time.Second):
		p.t.Error("still at work 20 s later")
	}
}

// If a command ends normally, its background processes continue.
func TestRunLeavesTheBackgroundOfACommandThatEndedWell(t *testing.T) {
	t.Parallel()
	c := testCluster(t)
	p := start(t, c.addrs(), "run", "k", "--", "sh", "-c", `exec 3<&0; sh -c 'echo in; read x <&3; echo "$x"' & exit 0`)
	p.line()
	state, err := p.cmd.Process.Wait()
	if err != nil || state.ExitCode() != 0 {
		t.Errorf("got %v, %v; want 0", state, err)
	}
	io.WriteString(p.in, "alive\n")
	p.says("alive")
}

// Four processes increment a number in a file, with five servers of which two are killed while they run.
func TestRunOnRealServers(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	file := filepath.Join(t.TempDir(), "counter")
	os.WriteFile(file, []byte("0\n"), 0o644)
	const processes, each = 4, 3
	var wg sync.WaitGroup
	for i := range processes {
		wg.Go(func() {
			for j := range each {
				if i == 0 && j == 1 {
					servers[1].Kill()
					servers[3].Kill()
				}
				p := start(t, addrsOf(servers), "run", "--ttl", "5s", "k", "--", "sh", "-c", `n=$(cat "$0"); sleep 0.02; echo $((n+1)) >"$0"`, file)
				if got := p.status(); got != 0 {
					t.Errorf("got %d, want 0: %s", got, p.stderr.String())
				}
			}
		})
	}
	wg.Wait()
	b, _ := os.ReadFile(file)
	if got, want := strings.TrimSpace(string(b)), strconv.Itoa(processes*each); got != want {
		t.Errorf("counter: got %s, want %s", got, want)
	}
}

// The second name replies long after the other nodes have formed a majority.
func TestRunRefusesOneServerUnderTwoNames(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 2)
	again, err := proxy.Start(servers[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	again.Delay(time.Millisecond, time.Millisecond)
	nodes := append(addrsOf(servers), again.Addr())
	var refused []string // the keys
	for i := range 5 {
		key := fmt.Sprint("k", i)
		p := start(t, nodes, "run", "--try", key, "--", "true")
		switch got := p.status(); {
		case got == exitUsage && strings.Contains(p.stderr.String(), "are one server"):
			refused = append(refused, key)
		case got != 0:
			t.Errorf("got %d, want %d: %s", got, exitUsage, p.stderr.String())
		}
	}
	if len(refused) == 0 { // not all five must be refused: a busy machine may take longer than run waits
		t.Fatal("refused: got none of 5, want all")
	}
	// Of a run that was not refused, the second name may store the lock again after the first has released it.
	for i, s := range servers {
		if n := s.Client().Exists(t.Context(), refused...).Val(); n != 0 {
			t.Errorf("server %d: %d of the locks %v are left", i, n, refused)
		}
	}
	t.Logf("%d of 5 refused", len(refused))
}
