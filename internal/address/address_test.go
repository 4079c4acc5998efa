package address

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestEveryFormOfAddressIsRead(t *testing.T) {
	for _, c := range []struct {
		url, network, addr string
		db                 int
		tls                bool
	}{
		{"redis://localhost:6380", "tcp", "localhost:6380", 0, false},
		{"redis://localhost", "tcp", "localhost:6379", 0, false},
		{"redis://user:secret@h:1/3", "tcp", "h:1", 3, false},
		{"rediss://h:1", "tcp", "h:1", 0, true},
		{"redis://[::1]:7", "tcp", "[::1]:7", 0, false},
		{"unix:///run/redis.sock", "unix", "/run/redis.sock", 0, false},
		{"unix://user:secret@/run/redis.sock", "unix", "/run/redis.sock", 0, false},
		{"h:1", "", "h:1", 0, false},
		{"[::1]:7", "", "[::1]:7", 0, false},
		{":6379", "", "localhost:6379", 0, false},
	} {
		t.Run(c.url, func(t *testing.T) {
			o, err := Parse(c.url, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if o.Network != c.network && o.Network != "tcp" || o.Addr != c.addr || o.DB != c.db || (o.TLSConfig != nil) != c.tls {
				t.Errorf("got %s %s db=%d tls=%v", o.Network, o.Addr, o.DB, o.TLSConfig != nil)
			}
			if strings.Contains(c.url, "secret") && (o.Username != "user" || o.Password != "secret") {
				t.Errorf("got user %q, password %q", o.Username, o.Password)
			}
		})
	}
}

func TestClientsNeverSendTwice(t *testing.T) {
	for _, url := range []string{"redis://h:1?max_retries=5&read_timeout=1ms&write_timeout=1ms&pool_size=1&dial_timeout=1h", "h:1"} {
		o, err := Parse(url, 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if o.MaxRetries != -1 || o.DialerRetries != 1 || !o.ContextTimeoutEnabled || !o.DisableIdentity || o.MaintNotificationsConfig == nil {
			t.Errorf("%s: got %+v", url, o)
		}
		if o.ReadTimeout != 6*time.Second || o.WriteTimeout != 6*time.Second || o.DialTimeout != dialTimeout {
			t.Errorf("%s: read %v, write %v, dial %v: want 6s, 6s, 2s", url, o.ReadTimeout, o.WriteTimeout, o.DialTimeout)
		}
	}
	if o, _ := Parse("h:1", time.Second); o.ReadTimeout != 2*time.Second {
		t.Errorf("by default: a read may take %v, want 2s", o.ReadTimeout)
	}
	if o, _ := Parse("h:1", time.Millisecond); o.ReadTimeout != dialTimeout {
		t.Errorf("a short node timeout: a read may take %v, want %v", o.ReadTimeout, dialTimeout)
	}
	if o, _ := Parse("h:1", math.MaxInt64); o.ReadTimeout <= 0 {
		t.Errorf("the longest node timeout: a read may take %v", o.ReadTimeout)
	}
}

// The passwords are cut at what ends a part of a URL: each piece would be as bad
// to show as the whole.
var passwordURLs = []struct {
	url    string
	secret []string
}{
	{"redis://user:hunter2@h:1/nonsense", []string{"hunter2"}},
	{"redis://:hunter2@h:port", []string{"hunter2"}},
	{"http://user:hunter2@h:1", []string{"hunter2"}},
	{"redis://user:hun@ter2@h:1?nonsense=1", []string{"hun@", "ter2"}},
	{"user:hunter2@h:1", []string{"hunter2"}},
	// Parts of those that are no valid URL.
	{"redis://user:hunter2#xyzzy@h:1", []string{"hunter2", "xyzzy"}},
	{"redis://user:hunter2/xyzzy@h:1", []string{"hunter2", "xyzzy"}},
	{"redis://user:1234/xyzzy@h:1", []string{"1234", "xyzzy"}},
	{"redis://user:1234?xyzzy@h:1", []string{"1234", "xyzzy"}},
	{"redis://user:hunter2\"@h:1/nonsense%", []string{"hunter2"}},
	{"redis://user:hunter2\x01@h:1", []string{"hunter2"}},
	{"redis://user:hunter2\\@h:1", []string{"hunter2"}},
	{"redis://user:hunter%zz2@h:1", []string{"hunter", "%zz"}},
	{"redis://h:1?password=hunter2", []string{"hunter2"}},
	{"redis://:hunter2@a,b:1", []string{"hunter2"}},
	{"redis://:hun,ter2@h:port", []string{"hun", "ter2"}},
	{"user:hunter2@h", []string{"hunter2"}}, // accepted, as are host "user" and port "hunter2@h"
	{"hunter2@h:1", []string{"hunter2"}},    // accepted: then it is the node's name in every error
}

func TestPasswordsAreNeverShown(t *testing.T) {
	for _, c := range passwordURLs {
		o, err := Parse(c.url, time.Second)
		text := fmt.Sprint(err)
		if err == nil {
			text = o.Addr // as errors call the node
		}
		for _, s := range c.secret {
			if strings.Contains(text, s) {
				t.Errorf("%q: %q is shown in %q", c.url, s, text)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, url := range []string{"", "h:1", ":1", "redis://h:1", "rediss://h:1/3", "unix:///a", "unix://a", "redis://u:%p@h:1", "http://h", "://", "redis://", "[::1]:7", "redis://[::1", "a@b:1", "redis://u@h:1?db=x"} {
		f.Add(url, int64(0))
	}
	for _, c := range passwordURLs {
		f.Add(c.url, int64(time.Second))
	}
	f.Fuzz(func(t *testing.T, url string, timeout int64) {
		o, err := Parse(url, time.Duration(timeout))
		if err != nil {
			if o != nil {
				t.Errorf("%q: options come with the error %v", url, err)
			}
			return
		}
		if o.MaxRetries != -1 || o.DialerRetries != 1 || !o.ContextTimeoutEnabled || o.PoolSize != poolSize {
			t.Errorf("%q: got %+v", url, o)
		}
		if o.Addr == "" || o.DialTimeout != dialTimeout || o.ReadTimeout < dialTimeout || o.WriteTimeout < dialTimeout || o.PoolTimeout < dialTimeout {
			t.Errorf("%q: address %q, dial %v, read %v", url, o.Addr, o.DialTimeout, o.ReadTimeout)
		}
	})
}

// FuzzPasswords puts a secret into addresses of all forms, none of which may show.
func FuzzPasswords(f *testing.F) {
	for _, tail := range []string{"h:1", "h:port", "h:1/nonsense", "h:1?nonsense=1", "", "h"} {
		f.Add("redis://user:", "hunter2", tail)
		f.Add("redis://:", "a:b", tail)
		f.Add("user:", "hunter2", tail)
		f.Add("http://:", "hunter2", tail)
	}
	f.Fuzz(func(t *testing.T, head, secret, tail string) {
		if !plainPassword(secret) {
			t.Skip() // see TestPasswordsAreNeverShown for those that are no part of a URL
		}
		switch head { // the others are for the seeds above
		case "redis://user:", "redis://:", "rediss://user:", "unix://user:", "http://:", "user:":
		default:
			t.Skip()
		}
		url := head + secret + "@" + tail
		if strings.Contains(head+tail, secret) || quotedAway(tail) || strings.Contains("redis: redlock database number scheme port want unix userinfo invalid", secret) {
			t.Skip() // it would be no secret, or the quoting of the rest hides it
		}
		if _, err := Parse(url, time.Second); err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: the password %q is shown in %q", url, secret, err)
		}
	})
}

// quotedAway reports whether a text looks different once it is quoted, as an error
// of net/url does with a whole URL, or ends the part of it that has the password.
func quotedAway(s string) bool {
	return strconv.Quote(s) != `"`+s+`"` || strings.Contains(s, "#")
}

// plainPassword reports whether a password can stand in a URL as it is.
func plainPassword(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~!$&'()*+,;=", r) {
			return false
		}
	}
	return len(s) >= 4
}

func TestAddressesThatNameNoNodeSayWhatTheyShouldBe(t *testing.T) {
	for url, want := range map[string]string{
		"redis://u:secret@a:1:2": "one host and one port",
		"redis://a:1:2":          "one host and one port",
		"localhost:6379/2":       "redis://localhost:6379/2",
		":6379/2":                "redis://:6379/2",
	} {
		if _, err := Parse(url, time.Second); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want an error that says %q and no password", url, err, want)
		}
	}
}
