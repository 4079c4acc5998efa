//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// asHolder makes this test binary, with the argument hold, what a run runs: what it works on is in this folder.
const asHolder = "REDLOCK_TEST_AS_HOLDER"

func init() {
	if dir := os.Getenv(asHolder); dir != "" && len(os.Args) == 2 && os.Args[1] == "hold" {
		hold(dir)
	}
}

// TestOlderBesideNewer has processes of an older command, $REDLOCK_OLDER, and of this one want the same locks on the same
// servers, some of which hang and restart, for $REDLOCK_REAL. What they run judges exclusion and fences.
func TestOlderBesideNewer(t *testing.T) {
	older := os.Getenv("REDLOCK_OLDER")
	if older == "" {
		t.Skip("REDLOCK_OLDER=path/to/redlock REDLOCK_REAL=2m runs it")
	}
	lasts := 20 * time.Second
	if text := os.Getenv("REDLOCK_REAL"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("REDLOCK_REAL: %v", err)
		}
	}
	servers := realredis.Start(t, 5, "--appendonly", "yes", "--appendfsync", "always")
	nodes := "REDLOCK_NODES=" + strings.Join(addrsOf(servers), ",")
	over := time.Now().Add(lasts)
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		ends = map[string]map[int]int{"older": {}, "newer": {}} // how often a run of it had this exit status
	)
	for key := range 2 {
		dir := filepath.Join(t.TempDir(), fmt.Sprint("key", key))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, command := range map[string]string{"older": older, "newer": os.Args[0]} {
			for range 2 {
				all.Go(func() {
					for time.Now().Before(over) {
						cmd := exec.Command(command, "run", "--ttl", "1s", "--wait", "20s", filepath.Base(dir), "--", os.Args[0], "hold")
						cmd.Env = append(os.Environ(), nodes, asHolder+"="+dir)
						if name == "newer" {
							cmd.Env = append(cmd.Env, asCommand+"=1")
						}
						var out bytes.Buffer
						cmd.Stdout, cmd.Stderr = &out, &out
						cmd.Run()
						status := cmd.ProcessState.ExitCode()
						mu.Lock()
						ends[name][status]++
						mu.Unlock()
						if strings.Contains(out.String(), "BROKEN") || status != 0 && status != exitLost && status != exitNoQuorum {
							t.Errorf("%s: exit status %d: %s", name, status, out.String())
						}
					}
				})
			}
		}
	}
	for time.Now().Before(over) {
		s := servers[rand.IntN(len(servers))]
		if rand.IntN(2) == 0 {
			s.Stop()
			<-time.After(time.Duration(rand.Int64N(int64(2 * time.Second))))
			s.Cont()
		} else {
			s.Restart()
		}
		<-time.After(500 * time.Millisecond)
	}
	all.Wait()
	t.Logf("runs by exit status, in %v: older %v, newer %v", lasts, ends["older"], ends["newer"])
	for name, n := range ends {
		if n[0] < 10 {
			t.Errorf("%s: %d runs had the lock, too few to mean anything", name, n[0])
		}
	}
}

// hold is what those runs run: it works for a while, and says so if it does not work alone, or does not have a greater fence
// than whoever worked before it. The kernel's own lock is free when its holder is dead.
func hold(dir string) {
	f, err := os.OpenFile(filepath.Join(dir, "work"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		fmt.Println("BROKEN: two holders:", err)
		os.Exit(1)
	}
	var last, fence int64
	fmt.Fscan(f, &last)
	if fmt.Sscan(os.Getenv("REDLOCK_FENCE"), &fence); fence <= last {
		fmt.Printf("BROKEN: fence %d after %d\n", fence, last)
		os.Exit(1)
	}
	if _, err := f.WriteAt(fmt.Appendf(nil, "%-20d", fence), 0); err != nil {
		panic(err)
	}
	work := time.Duration(rand.Int64N(int64(30 * time.Millisecond)))
	if rand.IntN(20) == 0 {
		work += 2 * time.Second // longer than the ttl
	}
	time.Sleep(work)
	os.Exit(0)
}
