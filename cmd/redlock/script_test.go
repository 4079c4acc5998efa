//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// TestScripts runs testdata/script: what the command's flags do, over three real servers that the scripts share, each
// with keys of its own. Beside the commands of testscript there are:
//
//	exits N CMD [ARG...]    run a command, which must exit with status N
//	hold NAME ARG...        start `redlock run ARG...` with a command that waits, and wait until that runs
//	let NAME [N]            end that command, and wait for the run, which must exit with status N (0)
//	queued KEY N            wait until N processes wait for the lock
//	apart DUR N CMD...      start a command N times, DUR apart, and wait for all
//	server NAME [ARG...]    start a server, or with cluster as the first argument a node of a cluster; $NAME is its address, and $NAME_PORT its port
//	replica NAME OF         start a replica of another server
//	tls NAME                start a server that wants certificates: ca.pem, cert.pem and key.pem are written
//	silent NAME             start a node that accepts connections and never replies
//	objects FILE            each line of the file must be a JSON object
//	lines FILE N            the file must have N lines
func TestScripts(t *testing.T) {
	t.Parallel()
	nodes := sync.OnceValue(func() string { return strings.Join(addrsOf(realredis.Start(t, 3)), ",") })
	t.Run("each", func(t *testing.T) { // the servers end after all of these
		testscript.Run(t, testscript.Params{
			Dir: "testdata/script",
			Setup: func(e *testscript.Env) error {
				bin := filepath.Join(e.WorkDir, ".bin")
				if err := os.Mkdir(bin, 0o700); err != nil {
					return err
				}
				e.Setenv("PATH", bin+string(filepath.ListSeparator)+e.Getenv("PATH"))
				e.Setenv(asCommand, "1")
				e.Setenv("GORACE", os.Getenv("GORACE"))
				if haveRedis() {
					e.Setenv("REDLOCK_NODES", nodes())
				}
				return os.Symlink(os.Args[0], filepath.Join(bin, "redlock"))
			},
			Condition: func(name string) (bool, error) {
				switch {
				case name != "redis" && name != "tls":
					return false, fmt.Errorf("unknown condition %q", name)
				case !haveRedis() && os.Getenv("REDLOCK_NEED_REDIS") != "":
					return false, errors.New("REDLOCK_NEED_REDIS is set, but there is no " + realredis.Binary)
				case !haveRedis() || name == "redis":
					return haveRedis(), nil
				}
				servers, err := realredis.StartServers(1, "--tls-session-caching", "no") // unknown to one without TLS
				if err == nil {
					servers[0].Close()
				}
				return err == nil, nil
			},
			Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"exits": scriptExits, "hold": scriptHold, "let": scriptLet, "queued": scriptQueued, "apart": scriptApart,
				"server": scriptServer, "replica": scriptReplica, "silent": scriptSilent, "tls": scriptTLS, "objects": scriptObjects, "lines": scriptLines,
			},
		})
	})
}

func haveRedis() bool {
	_, err := exec.LookPath(realredis.Binary)
	return err == nil
}

// want fails the script unless a command has ended with the status.
func want(ts *testscript.TestScript, err error, status string) {
	got := 0
	var e *exec.ExitError
	if errors.As(err, &e) {
		got = e.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(got) != status {
		ts.Fatalf("exit status: got %d, want %s", got, status)
	}
}

func scriptExits(ts *testscript.TestScript, _ bool, args []string) {
	want(ts, ts.Exec(args[1], args[2:]...), args[0])
}

// environOf returns the environment of the script as that of a command.
func environOf(ts *testscript.TestScript) []string {
	env := os.Environ()
	for _, name := range []string{"PATH", asCommand, "REDLOCK_NODES"} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	return env
}

// holders are the runs of hold, by script and name.
var holders sync.Map

type holder struct {
	cmd *exec.Cmd
	in  io.Closer
}

func scriptHold(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command("redlock", append(append([]string{"run"}, args[1:]...), "--", "sh", "-c", "echo in; read x; exit 0")...)
	cmd.Path = filepath.Join(ts.Getenv("WORK"), ".bin", "redlock")
	cmd.Err = nil
	cmd.Env, cmd.Dir = environOf(ts), ts.MkAbs(".")
	in, err := cmd.StdinPipe()
	ts.Check(err)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() { in.Close(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "in\n" {
		ts.Fatalf("the holder: got %q, %v", line, err)
	}
	holders.Store(ts.Getenv("WORK")+args[0], holder{cmd, in})
}

func scriptLet(ts *testscript.TestScript, _ bool, args []string) {
	h, ok := holders.Load(ts.Getenv("WORK") + args[0])
	if !ok {
		ts.Fatalf("there is no holder %s", args[0])
	}
	h.(holder).in.Close()
	want(ts, h.(holder).cmd.Wait(), append(args, "0")[1])
}

func scriptQueued(ts *testscript.TestScript, _ bool, args []string) {
	l, err := redlock.Open(redlock.Options{}, strings.Split(ts.Getenv("REDLOCK_NODES"), ",")...)
	ts.Check(err)
	defer l.Close()
	eventually(ts, args[1]+" waiters of "+args[0], func() bool {
		s, err := l.Inspect(context.Background(), args[0])
		return err == nil && strconv.Itoa(len(s.Queue)) == args[1]
	})
}

// eventually waits until ok returns true.
func eventually(ts *testscript.TestScript, what string, ok func() bool) {
	const limit = 20 * time.Second
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("%s: not within %v", what, limit)
		}
	}
}

func scriptApart(ts *testscript.TestScript, _ bool, args []string) {
	pause, err := time.ParseDuration(args[0])
	ts.Check(err)
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	var all sync.WaitGroup
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := range n {
		if i > 0 {
			<-tick.C
		}
		cmd := exec.Command(filepath.Join(ts.Getenv("WORK"), ".bin", args[2]), args[3:]...)
		cmd.Env, cmd.Dir = environOf(ts), ts.MkAbs(".")
		all.Go(func() { cmd.Run() })
	}
	all.Wait()
}

// scriptStart starts a server that ends with the script.
func scriptStart(ts *testscript.TestScript, args ...string) *realredis.Server {
	servers, err := realredis.StartServers(1, args...)
	ts.Check(err)
	ts.Defer(servers[0].Close)
	return servers[0]
}

func scriptServer(ts *testscript.TestScript, _ bool, args []string) {
	more := args[1:]
	if len(more) > 0 && more[0] == "cluster" {
		more = []string{"--cluster-enabled", "yes"} // without slots, so that it refuses every key
	}
	addr := scriptStart(ts, more...).Addr()
	_, port, _ := net.SplitHostPort(addr)
	ts.Setenv(args[0], addr)
	ts.Setenv(args[0]+"_PORT", port)
}

func scriptReplica(ts *testscript.TestScript, _ bool, args []string) {
	host, port, err := net.SplitHostPort(ts.Getenv(args[1]))
	ts.Check(err)
	s := scriptStart(ts, "--replicaof", host+" "+port)
	ts.Setenv(args[0], s.Addr())
}

func scriptSilent(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

func scriptTLS(ts *testscript.TestScript, _ bool, args []string) {
	ca, cert, key := ts.MkAbs("ca.pem"), ts.MkAbs("cert.pem"), ts.MkAbs("key.pem")
	ts.Check(writeCertificate(ca, cert, key))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	scriptStart(ts, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
	ts.Setenv(args[0], l.Addr().String())
}

// writeCertificate writes a certificate for 127.0.0.1, which is its own authority, and its key.
func writeCertificate(ca, cert, key string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public})
	return errors.Join(os.WriteFile(ca, text, 0o600), os.WriteFile(cert, text, 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}

func scriptObjects(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile(args[0])
	for line := range strings.Lines(text) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil || object["msg"] == nil || object["time"] == nil || object["level"] == nil {
			ts.Fatalf("%q: got %v, %v; want an object with time, level and msg", line, object, err)
		}
	}
	if text == "" {
		ts.Fatalf("%s is empty", args[0])
	}
}

func scriptLines(ts *testscript.TestScript, _ bool, args []string) {
	if got := strings.Count(ts.ReadFile(args[0]), "\n"); strconv.Itoa(got) != args[1] {
		ts.Fatalf("%s: got %d lines, want %s", args[0], got, args[1])
	}
}
